"""The program ``forebay``: imports the command line, and runs it.

Importing `forebay` takes most of a start, and no module inside it can surround that with anything.
So this one is outside, and first imports only what Python has imported by then.
"""

import os

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit status; Ctrl-C ends it with 130 from here on."""
    try:
        _import()
        from forebay.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


def _import() -> None:
    """Import the command line; Ctrl-C meanwhile ends the process.

    During an import, an exception of a signal handler may come up where Python prints and drops it.
    """
    import signal

    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        # Nothing was written yet.
        signal.signal(signal.SIGINT, lambda _signal, _frame: os._exit(130))
    try:
        import forebay.cli  # noqa: F401
    finally:
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
