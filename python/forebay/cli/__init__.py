"""The command line: ``forebay`` and ``python -m forebay``.

Related verbs share a module: `inspect` (info, topics, verify), `read` (cat, tail, query), `send`,
`repair`, `groups` (groups, reset-offsets), `dlq`, `export`, `archive`, `convert`, `compact`,
`commits`, `doctor`, `spark`, `console`, `shell`, `completion`, `bench`; the demo is `forebay.demo`.
This module joins them. It reports any error of a verb as one line on standard error and an exit
status.

====== ==========================================================
status meaning
====== ==========================================================
0      done
1      an error, damage was found, or `doctor` warned
2      wrong arguments
130    interrupted from the keyboard
141    the reader of a pipe closed it
====== ==========================================================
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import forebay
from forebay.cli.arguments import Parser, UsageError, join_times
from forebay.output import plain
from forebay.words import in_words_of_the_shell, named_as_options

__all__ = ["load", "main", "make_parser"]

#: Modules of verbs, in the order of the help. They are imported by `main`: Ctrl-C ends that as it
#: ends a verb.
_VERBS = (
    *("demo", "inspect", "send", "read", "groups", "dlq"),
    *("export", "archive", "convert", "repair", "compact", "commits", "doctor", "spark"),
    *("console", "shell", "completion", "bench"),
)


def load() -> None:
    """Import the modules of all verbs."""
    for name in _VERBS:
        importlib.import_module(f"forebay.cli.{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    Parameters
    ----------
    argv
        Arguments without the program name; by default those of the process.

    Examples
    --------
    >>> import forebay.cli
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
        # For debugging: let the traceback through.
        if os.environ.get("FOREBAY_TRACEBACK"):
            raise
        status = _complain(error)
    return _flush(status)


@contextlib.contextmanager
def _own_words() -> Iterator[None]:
    """Keep the store's warnings off standard error, unless logging is configured.

    The verbs report damage themselves. A filter affects this logger alone; a handler would also
    silence the loggers below it, such as ``forebay.spark.reader``.
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
    parser = make_parser()
    try:
        arguments = parser.parse_args(join_times(sys.argv[1:] if argv is None else argv))
    except SystemExit as end:
        # argparse exits this way after --help, --version and wrong arguments.
        return end.code if isinstance(end.code, int) else 2
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        _say(f"forebay {arguments.verb}: {error} (see forebay {arguments.verb} --help)")
        return 2
    except forebay.InvalidOptionError as error:
        raise named_as_options(error, parser.options_of(arguments.verb)) from error


def make_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="forebay",
        description="Inspect, write and read a durable message log in a directory.",
        epilog="See forebay VERB --help for details. Verbs that only read never change the store.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"forebay {forebay.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in _VERBS:
        importlib.import_module(f"forebay.cli.{name}").add(verbs)
    # The verb completion describes all verbs.
    parser.set_defaults(parser=parser)
    return parser


def _complain(error: Exception) -> int:
    """Report an error in one line and return the exit status."""
    error = in_words_of_the_shell(error)
    expected = (forebay.ForebayError, OSError, ValueError, TypeError, OverflowError, ImportError)
    if isinstance(error, OSError) and not isinstance(error, forebay.ForebayError):
        where = "" if error.filename is None else f"{os.fspath(error.filename)!s}: "
        _say(f"forebay: {where}{error.strerror or error}")
    elif isinstance(error, MemoryError):
        _say("forebay: there is not enough memory")
    elif isinstance(error, expected):
        _say(f"forebay: {error}")
    else:
        _say(f"forebay: unexpected {type(error).__name__}: {error}")
    return 1


def _say(line: str) -> None:
    # A daemon may have no standard error.
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(plain(line), file=sys.stderr)


def _flush(status: int) -> int:
    """Flush standard output here; at exit the interpreter would report an error as a traceback."""
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
