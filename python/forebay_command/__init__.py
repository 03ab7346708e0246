"""The program ``forebay``: imports the command line, and runs it.

Importing `forebay` takes most of a start, and no module inside it can surround that with anything.
So this one is outside, and imports as little as it can.
"""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit status; Ctrl-C ends it with 130 from here on."""
    # During an import, an exception of a signal handler may come up where Python prints and drops
    # it. Nothing was written yet, so the process can just end.
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))
    try:
        from forebay.cli import main as run
    finally:
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
