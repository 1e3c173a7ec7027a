"""Locks on shared file systems: seen by other machines, or refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from filelock import FileLock

from pipeline.cache import StageStore, locks
from pipeline.cache.locks import Mount, find, mount_of
from pipeline.errors import UserError

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:45 / /home rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2,hard,local_lock=none
41 22 0:46 / /scratch rw,relatime - nfs server:/scratch rw,vers=3,nolock,local_lock=all
42 22 0:47 / /fast rw,noatime - lustre 10.0.0.1@tcp:/fast rw,flock,lazystatfs
43 22 0:48 / /local rw,noatime - lustre 10.0.0.1@tcp:/local rw,localflock
44 22 0:49 / /far rw,nosuid - fuse.sshfs ann@far: rw,user_id=0
""".splitlines()


@pytest.mark.parametrize(
    ("minor", "kind", "reason"),
    [
        (45, "nfs4", None),
        (46, "nfs", "mounted with local_lock=all"),
        (47, "lustre", None),
        (48, "lustre", "without the option flock"),
        (49, "fuse.sshfs", "sshfs keeps locks to itself"),
    ],
)
def test_a_mount_tells_whether_its_locks_are_seen_elsewhere(minor, kind, reason, monkeypatch) -> None:
    mount = find(TABLE, 0, minor)
    assert mount is not None
    assert mount.kind == kind
    assert mount.is_network
    monkeypatch.setattr(locks, "mount_of", lambda folder: mount)
    if reason is None:
        locks.check_locks_are_shared("tracking.folder", "runs")
    else:
        with pytest.raises(UserError, match=rf"^tracking\.folder=runs: file locks on this {kind} .*{reason}"):
            locks.check_locks_are_shared("tracking.folder", "runs")


@pytest.mark.parametrize("kind", ["ext4", "nfs4", "lustre", "fuseblk", "fuse.glusterfs", "fuse"])
def test_a_database_that_other_machines_read_late_is_refused(kind, monkeypatch) -> None:
    monkeypatch.setattr(locks, "mount_of", lambda folder: Mount(kind, frozenset({"flock"})))
    locks.check_locks_are_shared("tracking.folder", "runs")
    if kind in ("fuse", "fuse.glusterfs"):
        with pytest.raises(UserError, match=rf"^tracking\.folder=runs: .* on this {kind} late; use tracking=server"):
            locks.check_reads_are_fresh("tracking.folder", "runs")
    else:
        locks.check_reads_are_fresh("tracking.folder", "runs")


def test_this_folder_is_on_some_mount_or_there_is_no_table(tmp_path: Path) -> None:
    assert find(TABLE, 9, 9) is None
    assert mount_of(tmp_path / "not" / "there") == mount_of(tmp_path)


@pytest.mark.parametrize("kind", ["ext4", "nfs4"])
def test_lock_files_stay_on_a_network_file_system_only(kind, tmp_path, monkeypatch) -> None:
    """NFS keeps a removed file under another name while it is open: who waits for it would not notice."""
    monkeypatch.setattr(locks, "mount_of", lambda folder: Mount(kind, frozenset()))
    locks._is_shared.cache_clear()
    with StageStore(tmp_path).lock("train", "k"):
        assert (tmp_path / "train" / "k.lock").exists()
    assert (tmp_path / "train" / "k.lock").exists() == (kind == "nfs4")
    locks._is_shared.cache_clear()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_refused_in_one_line(number, tmp_path, monkeypatch) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(UserError, match=r"no file locks there; choose another tracking\.folder"):
        StageStore(tmp_path).lock("train", "k").acquire(timeout=0.1)
    assert isinstance(StageStore(tmp_path).lock("train", "k"), FileLock)
