"""Headless Chromium through ChromeDriver's HTTP protocol: just what the tests of a static page need."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

# Nothing may reach for the network: the page is self-contained, and so is the browser.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def missing() -> str | None:
    """Why there is no browser here, or None."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: apt install chromium chromium-driver)"
    return None


class Browser:
    """One browser window; use as a context manager."""

    def __enter__(self) -> Browser:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-")
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._base = f"http://127.0.0.1:{port}"
        options = {"binary": shutil.which("chromium"), "args": [*_FLAGS, f"--user-data-dir={self._profile.name}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        for _ in range(100):
            try:
                session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        else:
            raise RuntimeError("chromedriver does not answer")
        self._base += f"/session/{session['sessionId']}"
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._call("DELETE", "", None)
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=20)
            self._profile.cleanup()

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file or an address in a window of this size, in the light or the dark colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)
        self.cdp("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._call("POST", "/url", {"url": page if isinstance(page, str) else page.absolute().as_uri()})

    def run(self, script: str) -> Any:
        """The value of a JavaScript function body."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def console(self) -> list[dict[str, Any]]:
        """Messages of the console since the last call."""
        return self._call("POST", "/se/log", {"type": "browser"})

    def screenshot(self, target: Path) -> None:
        """The whole page as PNG."""
        shot = self.cdp("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
        target.write_bytes(base64.b64decode(shot["data"]))

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of Chromium's own protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _call(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
