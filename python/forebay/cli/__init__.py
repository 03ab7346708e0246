"""The command line: ``forebay`` and ``python -m forebay``.

Each verb stands in a module with its relatives: `look` (info, topics, verify), `read` (cat, tail,
query), `send`, `mend` (repair), `export`, `archive`, `commits`, `doctor`, `spark`; the demo is
`forebay.demo`. This module joins them, and turns whatever ends a verb into one line on standard
error and a status.

====== ==========================================================
status meaning
====== ==========================================================
0      done
1      an error, damage was found, or `doctor` warns
2      the arguments are wrong
130    interrupted from the keyboard
141    the reader of a pipe went away
====== ==========================================================
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import forebay
from forebay.cli import archive, commits, demo, doctor, export, look, mend, read, send, spark
from forebay.cli.arguments import Parser, UsageError, join_times
from forebay.cli.output import plain

__all__ = ["main"]

_VERBS = (demo, look, send, read, export, archive, mend, commits, doctor, spark)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its status.

    Parameters
    ----------
    argv
        Arguments without the program's name; by default those of the process.

    Examples
    --------
    >>> forebay.cli.main(["info", "no-such-store"])
    1
    """
    try:
        with _own_words():
            status = _run(argv)
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        status = 141
    except Exception as error:
        # Whoever looks for a defect wants to see where it came from.
        if os.environ.get("FOREBAY_TRACEBACK"):
            raise
        status = _complain(error)
    return _flush(status)


@contextlib.contextmanager
def _own_words() -> Iterator[None]:
    """Keep the store's warnings off standard error, unless somebody has configured logging.

    The verbs say themselves where a store is damaged. A filter leaves the loggers below this one,
    such as ``forebay.spark.reader``, as they are; a handler would silence them too.
    """
    logger = logging.getLogger("forebay")
    if logger.hasHandlers():
        yield
        return
    logger.addFilter(_drop)
    try:
        yield
    finally:
        logger.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        arguments = parser.parse_args(join_times(sys.argv[1:] if argv is None else argv))
    except SystemExit as end:
        # argparse leaves in this way after --help, --version and wrong arguments.
        return end.code if isinstance(end.code, int) else 2
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        _say(f"forebay {arguments.verb}: {error} (see forebay {arguments.verb} --help)")
        return 2


def _parser() -> Parser:
    parser = Parser(
        prog="forebay",
        description="A durable message log in a directory: look into it, send to it, read from it.",
        epilog="forebay VERB --help says more. Verbs that look never write to the store.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"forebay {forebay.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for module in _VERBS:
        module.add(verbs)
    return parser


def _complain(error: Exception) -> int:
    """Say in one line what went wrong."""
    expected = (forebay.ForebayError, OSError, ValueError, TypeError, OverflowError)
    if isinstance(error, OSError) and not isinstance(error, forebay.ForebayError):
        where = "" if error.filename is None else f"{os.fspath(error.filename)!s}: "
        _say(f"forebay: {where}{error.strerror or error}")
    elif isinstance(error, expected):
        _say(f"forebay: {error}")
    else:
        _say(f"forebay: unexpected {type(error).__name__}: {error}")
    return 1


def _say(line: str) -> None:
    # Without standard error, as in a daemon, there is nobody to tell.
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(plain(line), file=sys.stderr)


def _flush(status: int) -> int:
    """Write out what is buffered; the interpreter would do it later, with a traceback."""
    if sys.stdout is None:
        return status
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = status or 141
    except OSError as error:
        status = status or _complain(error)
    else:
        return status
    with contextlib.suppress(OSError, ValueError, argparse.ArgumentError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return status
