"""A console that is served over the network."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import harness

from forebay.console import Console
from forebay.console.serve import Server, listen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

#: What Playwright waits at most for, in milliseconds.
LIMIT_MS = harness.LONG_S * 1000


@contextlib.contextmanager
def serving(console: Console) -> Iterator[str]:
    """Serve a console in a thread; yield its address."""
    server = Server(console)
    with listen("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join(harness.LONG_S)
    assert not thread.is_alive()


def chromium(playwright: Playwright) -> Browser:
    """Start a headless Chromium: the one on the path, if there is one."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    return playwright.chromium.launch(executable_path=found, timeout=LIMIT_MS)


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    """Yield a headless Chromium; skip the test where there is none."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        harness.lacks("chromium", "playwright is not installed")
    with sync_playwright() as playwright:
        try:
            browser = chromium(playwright)
        except Error as error:
            harness.lacks("chromium", f"no Chromium starts: {error}")
        yield browser
        browser.close()
