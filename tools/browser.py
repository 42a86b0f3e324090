"""Chromium without a window: what a page becomes when its scripts have run, and pictures of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["BROWSERS", "REMEDY", "find", "picture", "rendered"]

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
REMEDY = "no Chromium: as root `make setup` installs it; or apt-get install chromium-headless-shell"
_SECONDS = 120
# Nothing is to be reached: every host name fails.
_NO_HOSTS = "--host-resolver-rules=MAP * ~NOTFOUND"
_OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", _NO_HOSTS]


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def rendered(page: Path, fragment: str = "") -> str:
    """The page's elements as its scripts leave them; raises RuntimeError where a script fails."""
    return _run("--dump-dom", "--virtual-time-budget=5000", f"{page.as_uri()}{fragment}")


def picture(page: Path, fragment: str, into: Path, width: int, height: int, *options: str) -> None:
    """Writes a PNG of the page."""
    _run(*options, f"--screenshot={into}", f"--window-size={width},{height}", f"{page.as_uri()}{fragment}")


def _run(*arguments: str) -> str:
    browser = find()
    if browser is None:
        raise RuntimeError(REMEDY)
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [browser, *_OPTIONS, f"--user-data-dir={profile}", *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    if done.returncode != 0 or said:
        raise RuntimeError("\n".join(said) or done.stderr[-2000:])
    return done.stdout
