"""Arguments that the verbs share: stores, queues, times and bounds."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import forebay
from forebay.options import Bound
from forebay.store import open_writer

__all__ = [
    "TIME",
    "Parser",
    "UsageError",
    "add_bounds",
    "add_store",
    "bound",
    "count",
    "directory",
    "join_times",
    "limit",
    "moment",
    "number",
    "open_existing",
    "pair",
    "unknown",
]

#: The forms of a time, for help texts.
TIME = "a time such as 2026-03-01T12:00Z, 2026-03-01 (in this machine's time zone) or -2h"
_WHERE = (
    f"earliest, latest, {TIME}, "
    "QUEUE=OFFSET[,QUEUE=OFFSET...], or an offset if exactly one --queue is given"
)
_AGO = re.compile(r"-(\d{1,9})([smhdw])", re.ASCII)
_NUMBER = re.compile(r"-\d+|-\d*\.\d+", re.ASCII)
#: An argument that may be a misspelt relative time.
_LIKE_AGO = re.compile(r"-\d.*", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIMES = ("--begin", "--end", "--start", "--to")
_CHOICE = re.compile(r"(invalid choice: '([^']*)') \(choose from (.*)\)$")
#: Complaints of argparse that a user of the command would not understand, and what replaces them.
_WORDS = (
    (re.compile(r"argument (.+): expected one argument"), r"\1 needs a value"),
    (re.compile(r"argument (.+): ignored explicit argument (.+)"), r"\1 takes no value, got \2"),
)


class UsageError(Exception):
    """Arguments that are valid one by one, but not together."""


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and takes options anywhere."""

    def error(self, message: str) -> NoReturn:
        """Report wrong arguments and exit with status 2."""
        line = _suggest(" ".join(message.split()))
        for pattern, words in _WORDS:
            line = pattern.sub(words, line)
        print(f"{self.prog}: {line} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(2)

    def options_of(self, verb: str) -> Container[str]:
        """Return the options of a verb, and those of its own verbs."""
        found: set[str] = set()
        parsers = [self._verbs()[verb]]
        while parsers:
            parser = parsers.pop()
            found.update(parser._option_string_actions)
            parsers.extend(parser._verbs().values())
        return found

    def _verbs(self) -> dict[str, Parser]:
        kinds = (it for it in self._actions if isinstance(it, argparse._SubParsersAction))
        return {name: parser for it in kinds for name, parser in it.choices.items()}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; report unknown ones here, where the verb and its options are known."""
        arguments = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            arguments = self._options_first(arguments)
        else:
            # Otherwise argparse would complain that there is no verb.
            self._check_before_verb(arguments)
        found, extra = super().parse_known_args(arguments, namespace)
        # "--" marks the end of the options, and is no argument itself.
        self._refuse([one for one in extra if one != "--"])
        return found, extra

    def _check_before_verb(self, arguments: list[str]) -> None:
        """Report options in front of the verb that are unknown there."""
        options = itertools.takewhile(_looks_like_option, arguments)
        names = [one.partition("=")[0] for one in options if one != "--"]
        unknown = [one for one in names if one not in self._option_string_actions]
        for name in unknown:
            if any(name in self.options_of(verb) for verb in self._verbs()):
                self.error(f"{name} is an option of a verb, and must come after it")
        self._refuse(unknown)

    def _refuse(self, arguments: list[str]) -> None:
        """Report unknown arguments, if there are any, and what may have been meant."""
        # The dashes that all names share must not make them similar.
        names = [one[2:] for one in self._option_string_actions if one.startswith("--")]
        for argument in arguments:
            option = argument.partition("=")[0]
            near = difflib.get_close_matches(option.removeprefix("--"), names, 1)
            if option.startswith("--") and near:
                self.error(f"unrecognized argument {option}, did you mean --{near[0]}?")
        if arguments:
            self.error(f"unrecognized arguments: {' '.join(arguments)}")

    def _options_first(self, arguments: list[str]) -> list[str]:
        """Move options before the other arguments.

        argparse gives an argument that may be repeated, such as the bodies of `send`, only what
        stands before the next option, even if that is nothing.
        """
        options: list[str] = []
        others: list[str] = []
        while arguments:
            argument = arguments.pop(0)
            if argument == "--":
                others += arguments
                break
            if not _looks_like_option(argument):
                others.append(argument)
                continue
            options.append(argument)
            action = self._option_string_actions.get(argument)
            takes_value = action is not None and action.nargs != 0
            if takes_value and arguments and not _looks_like_option(arguments[0]):
                options.append(arguments.pop(0))
        return [*options, "--", *others] if others else options


def _looks_like_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-" and not _NUMBER.fullmatch(argument)


def _suggest(complaint: str) -> str:
    """Add the nearest valid choice to a complaint about an invalid one."""
    found = _CHOICE.search(complaint)
    if found is None:
        return complaint
    near = difflib.get_close_matches(found[2], re.findall(r"[\w-]+", found[3]), 1)
    if not near:
        return complaint
    return complaint.replace(found[1], f"{found[1]}, did you mean {near[0]}?")


def join_times(arguments: Sequence[str]) -> list[str]:
    """Join relative times such as ``-2h`` to their options; argparse mistakes them for options."""
    joined: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return [*joined, *arguments[at:]]
        if joined and joined[-1] in _TIMES and _LIKE_AGO.fullmatch(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the store directory, the first argument of most verbs."""
    parser.add_argument("store", metavar="STORE", type=directory, help="directory of the store")


def directory(text: str) -> str:
    """Take the name of a directory; a store in memory would end with the command."""
    if not text:
        raise argparse.ArgumentTypeError(f"must name a directory, got {text!r}")
    if text == ":memory:":
        raise argparse.ArgumentTypeError(
            f"must be a directory, got {text!r}: a store in memory would end with the command"
        )
    return text


def open_existing(store: str, *, adopt: bool) -> forebay.Store:
    """Open a store for writing, without creating one."""
    forebay.open(store, mode="r").close()
    return open_writer(store, adopt=adopt)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Say that there is no `what` of this name, and name the nearest one."""
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f', did you mean "{near[0]}"?' if near else ""
    return f'there is no {what} "{name}"{hint}'


def add_bounds(parser: argparse.ArgumentParser, *, start: str = "earliest") -> None:
    """Add options for queues, tags, start and end."""
    parser.add_argument(
        "--queue",
        metavar="N",
        type=number,
        action="append",
        help="only this queue; may be repeated",
    )
    parser.add_argument(
        "--tags",
        metavar="TAG",
        action="append",
        help="only messages with this tag; may be repeated",
    )
    parser.add_argument(
        "--start", metavar="WHERE", type=bound, default=start, help=f"where to begin: {_WHERE}"
    )
    parser.add_argument(
        "--end",
        metavar="WHERE",
        type=bound,
        default="latest",
        help="where to stop, exclusive, in the same forms; the default is the current end",
    )


def number(text: str, most: int = (1 << 63) - 1) -> int:
    """Parse a non-negative integer: a queue, an offset or a count."""
    # An integer of thousands of digits would take long, or be refused in other words.
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > most:
        limit = "2^63 - 1" if most == (1 << 63) - 1 else f"{most}"
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to {limit}, got {text!r}")
    return int(text)


def count(text: str, most: int = (1 << 63) - 1) -> int:
    """Parse a count of at least 1."""
    found = number(text, most)
    if found == 0:
        raise argparse.ArgumentTypeError("must be at least 1, got 0")
    return found


def pair(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Parse a name and a value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must have the form {form}, got {text!r}")
    return name, value


def moment(text: str) -> datetime | int:
    """Parse a time in a form that `_time` accepts, or in milliseconds since the epoch."""
    if text.isascii() and text.isdecimal():
        return number(text)
    return _time(text)


def bound(text: str) -> Bound | int:
    """Parse a start or end; a bare offset stays an int, which `limit` assigns to a queue."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdecimal():
        return number(text)
    if "=" not in text:
        return _time(text)
    offsets = {}
    for part in text.split(","):
        queue, _, offset = part.partition("=")
        offsets[number(queue)] = number(offset)
    return offsets


def limit(where: Bound | int, queues: list[int] | None) -> Bound:
    """Return the start or end that `where` means; a bare offset needs exactly one queue."""
    if not isinstance(where, int):
        return where
    if queues is None or len(set(queues)) != 1:
        reason = f"{where} may be an offset or a time: write QUEUE={where}, or give one --queue"
        raise UsageError(reason)
    return {queues[0]: where}


def _time(text: str) -> datetime:
    """Parse an ISO 8601 time, in this machine's zone by default, or a time ago such as ``-2h``."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        time = datetime.fromisoformat(text)
        return time if time.tzinfo is not None else time.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise argparse.ArgumentTypeError(
            f"invalid time {text!r}; examples: 2026-03-01T12:00Z, 2026-03-01, -2h"
        ) from error
