"""Verbs that print messages: cat, tail, query."""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import forebay
from forebay import _forebay
from forebay.cli.arguments import (
    TIME,
    UsageError,
    add_bounds,
    add_store,
    count,
    limit,
    moment,
    number,
    unknown,
)
from forebay.cli.inspect import damage_line, places
from forebay.cli.rows import FORMATS, Writer
from forebay.options import Bound
from forebay.output import counted, plain, stdout

__all__ = ["Slice", "add", "report_damage"]


def add(verbs: Any) -> None:
    """Add the verbs to the parser."""
    text = (
        "print the messages of one topic after another, in the order they were stored; in a "
        "partition log only each queue has an order"
    )
    cat = verbs.add_parser("cat", help=text, description=text, allow_abbrev=False)
    add_store(cat)
    cat.add_argument("topic", metavar="TOPIC", nargs="+", help="a topic; may be repeated")
    add_bounds(cat)
    cat.add_argument("--limit", metavar="N", type=count, help="stop after N messages")
    _add_format(cat)
    cat.set_defaults(run=_cat)

    text = "print the newest messages of a topic, and with -f those that arrive"
    tail = verbs.add_parser("tail", help=text, description=text, allow_abbrev=False)
    add_store(tail)
    tail.add_argument("topic", metavar="TOPIC")
    tail.add_argument(
        "-n",
        "--limit",
        metavar="N",
        type=number,
        default=10,
        help="newest messages to print first; the default is 10",
    )
    tail.add_argument(
        "-f", "--follow", action="store_true", help="wait for new messages until Ctrl-C"
    )
    tail.add_argument("--queue", metavar="N", type=number, action="append", help="only this queue")
    tail.add_argument("--tags", metavar="TAG", action="append", help="only messages with this tag")
    _add_format(tail)
    tail.set_defaults(run=_tail)

    text = "print the messages of a topic that have the key, newest first"
    query = verbs.add_parser("query", help=text, description=text, allow_abbrev=False)
    add_store(query)
    query.add_argument("topic", metavar="TOPIC")
    query.add_argument("key", metavar="KEY")
    when = f"{TIME}, or milliseconds since the epoch"
    query.add_argument("--begin", metavar="TIME", type=moment, help=f"stored at or after {when}")
    query.add_argument("--end", metavar="TIME", type=moment, help="stored at or before; same forms")
    query.add_argument("--limit", metavar="N", type=count, default=32, help="at most N; default 32")
    _add_format(query)
    query.set_defaults(run=_query)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="jsonl",
        help="the format: jsonl (the default: one JSON object per line), csv or raw (bodies only). "
        "Non-UTF-8 bodies are printed as base64, except in raw",
    )
    parser.add_argument(
        "--json", dest="format", action="store_const", const="jsonl", help="same as --format jsonl"
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="add headers, the key as stored, hosts, flags and system properties to JSON",
    )
    parser.add_argument(
        "--delimiter",
        metavar="TEXT",
        help=r"with --format raw, written after each body; \n (default), \t, \r, \0, any text, or "
        "empty",
    )


def _queues(known: set[int]) -> str:
    """Return which queues a topic has."""
    if len(known) < 2:
        return f"its only queue is {min(known)}" if known else "it has none"
    first, last = min(known), max(known)
    if last - first < len(known):
        return f"its queues are {first} to {last}"
    return f"it has {counted(len(known), 'queue')} between {first} and {last}"


class Slice:
    """The messages of a topic between two bounds, in the order they were stored.

    Those of a partition log are in the order of each queue only.

    The bounds are turned into offsets on construction; messages sent later are not included.
    """

    def __init__(
        self,
        store: forebay.Store,
        topic: str,
        *,
        queues: list[int] | None = None,
        tags: list[str] | None = None,
        start: Bound = "earliest",
        end: Bound = "latest",
        last: int | None = None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._tags = tags
        found = store.topics.get(topic)
        if found is None:
            raise forebay.UnknownTopicError(unknown("topic", topic, store.topics), topic=topic)
        known = {queue.id for queue in found.queues}
        bounds = [bound for bound in (start, end) if isinstance(bound, Mapping)]
        for asked in itertools.chain(queues or [], *bounds):
            if asked not in known:
                reason = f"topic {topic} has no queue {asked}; {_queues(known)}"
                raise forebay.UnknownTopicError(reason, topic=topic, queue=asked)
        # Queues that are not selected keep empty ranges.
        self._ends = {queue.id: queue.max_offset for queue in found.queues}
        self._starts = dict(self._ends)
        chosen = [queue for queue in found.queues if queues is None or queue.id in queues]
        for it in _forebay.offsets_between(store, topic, chosen, start, end):
            # The newest `last` messages of the topic are among the newest `last` of each queue.
            self._starts[it.queue] = it.start if last is None else max(it.start, it.end - last)
            self._ends[it.queue] = it.end

    @property
    def ends(self) -> dict[int, int]:
        """Exclusive end offset of each queue."""
        return dict(self._ends)

    def __len__(self) -> int:
        """Return an upper bound of the number of messages."""
        return sum(max(end - self._starts[queue], 0) for queue, end in self._ends.items())

    def __iter__(self) -> Iterator[forebay.Message]:
        """Read the messages."""
        open_queues = {queue for queue, end in self._ends.items() if self._starts[queue] < end}
        tail = self._store.tail(self._topic, start=self._starts, follow=False)
        while open_queues:
            message = next(tail, None)
            if message is None:
                return
            end = self._ends.get(message.queue, 0)
            if message.offset >= end - 1:
                open_queues.discard(message.queue)
            if message.offset < end and (self._tags is None or message.tags in self._tags):
                yield message


def report_damage(damage: list[forebay.Damage]) -> int:
    """Report skipped damage on standard error; return the exit status."""
    if not damage:
        return 0
    line = (
        f"forebay: skipped {places(damage)}; all other messages were written; "
        f"first: {damage_line(damage[0])}"
    )
    print(plain(line), file=sys.stderr)
    return 1


def _cat(arguments: argparse.Namespace) -> int:
    _check_delimiter(arguments)
    queues = arguments.queue
    start, end = limit(arguments.start, queues), limit(arguments.end, queues)
    left = arguments.limit
    with forebay.open(arguments.store, mode="r") as store:
        slices = [
            Slice(store, topic, queues=queues, tags=arguments.tags, start=start, end=end)
            for topic in arguments.topic
        ]
        writer = _writer(arguments)
        for message in itertools.islice(itertools.chain.from_iterable(slices), left):
            writer.write(message)
        return report_damage(store.damage)


def _tail(arguments: argparse.Namespace) -> int:
    _check_delimiter(arguments)
    topic, queues, tags = arguments.topic, arguments.queue, arguments.tags
    with forebay.open(arguments.store, mode="r") as store:
        newest = Slice(store, topic, queues=queues, tags=tags, last=_reach(arguments))
        writer = _writer(arguments)
        for message in collections.deque(newest, maxlen=arguments.limit):
            writer.write(message)
        if not arguments.follow:
            return report_damage(store.damage)
        stdout().flush()
        for message in store.tail(topic, start=newest.ends, follow=True):
            wanted = queues is None or message.queue in queues
            if wanted and (tags is None or message.tags in tags):
                writer.write(message)
                # A follower needs each message as it arrives, in a pipe too.
                stdout().flush()
    return 0


def _reach(arguments: argparse.Namespace) -> int | None:
    """Return how many messages of each queue to read; None, for all, if tags select some."""
    return None if arguments.tags and arguments.limit else int(arguments.limit)


def _query(arguments: argparse.Namespace) -> int:
    _check_delimiter(arguments)
    with forebay.open(arguments.store, mode="r") as store:
        if arguments.topic not in store.topics:
            text = unknown("topic", arguments.topic, store.topics)
            raise forebay.UnknownTopicError(text, topic=arguments.topic)
        found = store.query(
            arguments.topic,
            arguments.key,
            begin=arguments.begin,
            end=arguments.end,
            max_messages=arguments.limit,
        )
        writer = _writer(arguments)
        for message in found:
            writer.write(message)
        return report_damage(store.damage)


def _check_delimiter(arguments: argparse.Namespace) -> None:
    if arguments.delimiter is not None and arguments.format != "raw":
        raise UsageError(f"--delimiter needs --format raw, got --format {arguments.format}")


def _writer(arguments: argparse.Namespace) -> Writer:
    delimiter = "\\n" if arguments.delimiter is None else arguments.delimiter
    return Writer(stdout(), arguments.format, full=arguments.full, delimiter=delimiter)
