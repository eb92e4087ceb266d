"""A headless browser for tests; where there is none, they are skipped with the reason."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Lend a browser, for one module: while it is open this process runs an event loop.

    No other test of the process could start one of its own.
    """
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser: none of {', '.join(_BROWSERS)} is on the PATH")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, timeout=60_000)
        yield running
        running.close()
