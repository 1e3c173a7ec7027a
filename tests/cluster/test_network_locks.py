"""Our locks on a network file system: two mounts of GlusterFS, a server and two clients in user space, as two machines.

NFS needs a kernel with a client; where there is none, this is a file system over a network all the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import Timeout

from mlflow_server import free_port
from pipeline.cache.locks import PassingLock, mount_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        shutil.which("glusterfsd") is None or not Path("/dev/fuse").exists() or os.getuid() != 0,
        reason="needs root, FUSE and Debian's glusterfs-server",
    ),
]

SERVER = """\
volume files
  type storage/posix
  option directory {folder}/files
end-volume
volume locks
  type features/locks
  subvolumes files
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option auth.addr.locks.allow 127.0.0.1
  subvolumes locks
end-volume
"""
CLIENT = """\
volume client
  type protocol/client
  option transport-type tcp
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume locks
end-volume
"""
HOLD = """\
import sys, time
from pipeline.cache.locks import PassingLock
with PassingLock(sys.argv[1]).acquire():
    print("held", flush=True)
    time.sleep(600)
"""


def _start(program: str, folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    log = folder / f"{name}.log"
    log.touch()
    return subprocess.Popen([program, "--no-daemon", "-f", str(folder / f"{name}.vol"), "-l", str(log), *arguments])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The clients by the name of their mounts, a and b below ``tmp_path``."""
    port = free_port()
    (tmp_path / "files").mkdir()
    (tmp_path / "server.vol").write_text(SERVER.format(folder=tmp_path, port=port))
    running = {"server": _start("glusterfsd", tmp_path, "server")}
    try:
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / f"{name}.vol").write_text(CLIENT.format(port=port))
            running[name] = _start("glusterfs", tmp_path, name, str(tmp_path / name))
            limit = time.monotonic() + 60
            while not os.path.ismount(tmp_path / name):
                assert time.monotonic() < limit, (tmp_path / f"{name}.log").read_text()[-2000:]
                time.sleep(0.1)
        yield running
    finally:
        for name in "ab":
            subprocess.run(["umount", "-l", str(tmp_path / name)], capture_output=True)
        for process in running.values():
            process.kill()
            process.wait()


def _holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _is_free(lock: Path, wait: float = 0) -> bool:
    try:
        with PassingLock(lock).acquire(timeout=wait):
            return True
    except Timeout:
        return False


@pytest.mark.parametrize("dies", ["holder", "machine"])
def test_one_holder_on_all_machines_and_none_once_it_has_died(machines, tmp_path: Path, dies: str) -> None:
    mount = mount_of(tmp_path / "a")
    assert mount is not None
    assert mount.kind == "fuse.glusterfs"
    assert mount.is_network
    here, there = (tmp_path / name / "x.lock" for name in "ab")
    holder = _holder(here)
    try:
        assert not _is_free(here)
        assert not _is_free(there)
        victim = holder if dies == "holder" else machines["a"]
        victim.send_signal(signal.SIGKILL)
        assert _is_free(there, wait=60)
    finally:
        holder.kill()
        holder.wait()
    # It stays: who waits for a file that is gone on another machine would not see that.
    assert (tmp_path / "files" / "x.lock").exists()
