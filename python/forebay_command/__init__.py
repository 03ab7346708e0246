"""The program ``forebay``: imports the command line, and runs it.

Importing `forebay` takes most of a start, and no module inside it can surround that with anything.
So this one is outside, and first imports only what Python has imported by then.
"""

# The module `signal` imports others, and until the handler is set nothing may be imported.
import _signal as signal  # type: ignore[import-not-found]
import os

__all__ = ["main", "run"]


def main() -> int:
    """Run the command line and return its exit status; Ctrl-C ends it with 130 from here on."""
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return run(waits)


def run(waits: bool) -> int:
    """Run the command line; `waits`: for Ctrl-C, which this process does not ignore."""
    try:
        if waits:
            # During an import, an exception of a signal handler may come up where Python prints and
            # drops it. Nothing was written yet.
            signal.signal(signal.SIGINT, _end)
        from forebay import cli

        cli.load()
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.main()
        if waits:
            # All is flushed and closed, and Python would print where in its own end it was.
            signal.signal(signal.SIGINT, _end)
        return status
    except KeyboardInterrupt:
        return 130


def _end(_signal: object, _frame: object) -> None:
    os._exit(130)
