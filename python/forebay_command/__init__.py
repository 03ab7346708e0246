"""The program ``forebay``: imports the command line, and runs it.

Importing `forebay` takes most of the start-up time, and no module inside the package can handle
Ctrl-C during that. So this module is outside, and first imports only what Python itself has already
imported.
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
    """Run the command line; `waits` says that this process does not ignore Ctrl-C."""
    try:
        if waits:
            # During an import, Python may print and drop the exception of a signal handler. Nothing
            # is written yet, so the process can just end.
            signal.signal(signal.SIGINT, _end)
        from forebay import cli

        cli.load()
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.main()
        if waits:
            # Everything is flushed and closed; Python would print a traceback of its own shutdown.
            signal.signal(signal.SIGINT, _end)
        return status
    except KeyboardInterrupt:
        return 130


def _end(_signal: object, _frame: object) -> None:
    os._exit(130)
