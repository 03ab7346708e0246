"""What the verbs have in common in their arguments: places, times, bounds, formats."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import NoReturn, TypeAlias

__all__ = [
    "Limit",
    "Parser",
    "UsageError",
    "add_bounds",
    "add_store",
    "bound",
    "count",
    "limit",
    "moment",
    "number",
    "pair",
]

#: One end of what is read, as scans and tails take it.
Limit: TypeAlias = str | datetime | Mapping[int, int]

_WHERE = (
    "earliest, latest, a time with its zone such as 2026-03-01T12:00Z, "
    "QUEUE=OFFSET[,QUEUE=OFFSET...], or an offset where one --queue is given"
)


class UsageError(Exception):
    """Arguments that are well formed, but do not go together."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line long."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and leave with status 2."""
        line = " ".join(message.split())
        print(f"{self.prog}: {line} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the directory that every verb begins with."""
    parser.add_argument("store", metavar="STORE", help="directory of the store")


def add_bounds(parser: argparse.ArgumentParser, *, start: str = "earliest") -> None:
    """Add queues, tags and both ends of what is read."""
    parser.add_argument(
        "--queue",
        metavar="N",
        type=number,
        action="append",
        help="only this queue; may be given several times",
    )
    parser.add_argument(
        "--tags",
        metavar="TAG",
        action="append",
        help="only messages with this tag; may be given several times",
    )
    parser.add_argument(
        "--start", metavar="WHERE", type=bound, default=start, help=f"where to begin: {_WHERE}"
    )
    parser.add_argument(
        "--end",
        metavar="WHERE",
        type=bound,
        default="latest",
        help="where to stop, exclusive: the same; the default is the end at this moment",
    )


def number(text: str) -> int:
    """Parse a queue or an offset."""
    if not text.isascii() or not text.isdecimal() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def count(text: str) -> int:
    """Parse how many of something."""
    found = number(text)
    if found == 0:
        raise argparse.ArgumentTypeError("it is at least 1")
    return found


def pair(text: str) -> tuple[str, str]:
    """Parse a property."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def moment(text: str) -> datetime | int:
    """Parse a time: ISO 8601 with a zone, or milliseconds since the epoch."""
    if text.isascii() and text.isdecimal():
        return number(text)
    return _time(text)


def bound(text: str) -> str | datetime | dict[int, int] | int:
    """Parse one end of what is read; a bare offset is left to `limit`, which knows the queues."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return number(text)
    if "=" not in text:
        return _time(text)
    offsets = {}
    for part in text.split(","):
        queue, _, offset = part.partition("=")
        offsets[number(queue)] = number(offset)
    return offsets


def limit(where: str | datetime | dict[int, int] | int, queues: list[int] | None) -> Limit:
    """Return the end that `where` means; an offset alone needs to know whose it is."""
    if not isinstance(where, int):
        return where
    if queues is None or len(set(queues)) != 1:
        reason = f"{where} may be an offset or a time: write QUEUE={where}, or give one --queue"
        raise UsageError(reason)
    return {queues[0]: where}


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; one is 2026-03-01T12:00Z"
        ) from error
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: append Z, or one such as +01:00")
    return time
