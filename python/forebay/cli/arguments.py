"""What the verbs have in common in their arguments: places, times, bounds, formats."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn, TypeAlias

__all__ = [
    "TIME",
    "Limit",
    "Parser",
    "UsageError",
    "add_bounds",
    "add_store",
    "bound",
    "count",
    "join_times",
    "limit",
    "moment",
    "number",
    "pair",
]

#: One end of what is read, as scans and tails take it.
Limit: TypeAlias = str | datetime | Mapping[int, int]

#: What a time may be, for help texts.
TIME = "a time such as 2026-03-01T12:00Z, 2026-03-01 (of this machine's zone) or -2h"
_WHERE = (
    f"earliest, latest, {TIME}, "
    "QUEUE=OFFSET[,QUEUE=OFFSET...], or an offset where one --queue is given"
)
_AGO = re.compile(r"-(\d{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIMES = ("--begin", "--end", "--start")
_CHOICE = re.compile(r"(invalid choice: '([^']*)') \(choose from (.*)\)$")


class UsageError(Exception):
    """Arguments that are well formed, but do not go together."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line long."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and leave with status 2."""
        line = _suggest(" ".join(message.split()))
        print(f"{self.prog}: {line} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)


def _suggest(complaint: str) -> str:
    """Name the choice that was probably meant, where a complaint is about one that is none."""
    found = _CHOICE.search(complaint)
    if found is None:
        return complaint
    near = difflib.get_close_matches(found[2], re.findall(r"[\w-]+", found[3]), 1)
    if not near:
        return complaint
    return complaint.replace(found[1], f"{found[1]}, did you mean {near[0]}?")


def join_times(arguments: Sequence[str]) -> list[str]:
    """Join times that count back, such as ``-2h``, with their options: they look like options."""
    joined: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return [*joined, *arguments[at:]]
        if joined and joined[-1] in _TIMES and _AGO.fullmatch(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


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
    """Parse a time: as `_time` has it, or milliseconds since the epoch."""
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
    """Parse ISO 8601, with the zone of this machine where it names none, or how long ago."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is not None else time.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; some are 2026-03-01T12:00Z, 2026-03-01 and -2h"
        ) from error
