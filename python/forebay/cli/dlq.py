"""The verb dlq: dead letters, which a group of consumers could not handle.

They are messages of the topic ``%DLQ%<group>``. How far they are redriven or purged is kept as the
progress of the group in that topic, so a second run begins where the first ended.
"""

from __future__ import annotations

import argparse
import collections
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import forebay
from forebay.cli.arguments import add_store, count, open_existing, unknown
from forebay.cli.rows import as_dict
from forebay.output import Progress, write_json, write_line, write_table

__all__ = ["add"]

_PREFIX = "%DLQ%"
#: Dead letters that are redriven with one flush. A process that dies may send these twice.
_BATCH = 100
#: System properties that name the topic of a dead letter: of Forebay and RocketMQ, and of newer
#: releases of RocketMQ.
_TOPICS = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
_REASON = "FOREBAY_REASON"


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "list, show, redrive and purge the messages that groups could not handle"
    parser = verbs.add_parser("dlq", help=text, description=text, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, run, what in (
        ("list", _list, "list the groups that have dead letters"),
        ("show", _show, "show dead letters: original topic, attempts, reason"),
        ("redrive", _redrive, "send dead letters again, to their original topics"),
        ("purge", _purge, "count all dead letters of a group as handled"),
    ):
        action = actions.add_parser(name, help=what, description=what, allow_abbrev=False)
        add_store(action)
        if name != "list":
            action.add_argument("group", metavar="GROUP")
        if name in ("show", "redrive"):
            action.add_argument("--limit", metavar="N", type=count, help="at most N dead letters")
        if name == "show":
            action.add_argument(
                "--all", action="store_true", help="also those that were redriven or purged"
            )
        if name == "redrive":
            action.add_argument(
                "--to", metavar="TOPIC", help="send to this topic instead of the original ones"
            )
        if name in ("redrive", "purge"):
            action.add_argument(
                "--adopt",
                action="store_true",
                help="write to a directory that Forebay did not create",
            )
        lines = "write one JSON object per line, with the bodies"
        text = lines if name == "show" else "write a JSON document"
        action.add_argument("--json", action="store_true", help=text)
        action.set_defaults(run=run)


@dataclass(frozen=True)
class _Queue:
    """The dead letters of a group in one queue; those from `next` on are waiting."""

    topic: str
    queue: int
    first: int
    next: int
    end: int

    @property
    def waiting(self) -> int:
        return self.end - self.next

    def read(
        self, store: forebay.Store, *, start: int, limit: int | None = None
    ) -> Iterator[forebay.Message]:
        """Read from `start` on, at most `limit`."""
        offset, left = start, self.end - start if limit is None else limit
        while offset < self.end and left > 0:
            found = store.read(self.topic, self.queue, offset, min(left, _BATCH))
            yield from found.messages
            left -= len(found.messages)
            if found.next_offset <= offset:
                return
            offset = found.next_offset


def _queues(store: forebay.Store, group: str) -> list[_Queue]:
    """Return the dead letters of a group, by queue."""
    name = _PREFIX + group
    topic = store.topics.get(name)
    if topic is None:
        groups = [one.removeprefix(_PREFIX) for one in store.topics if one.startswith(_PREFIX)]
        raise ValueError(unknown("dead letter of group", group, groups))
    done = {one.queue: one.committed for one in store.groups.get(group, []) if one.topic == name}
    return [
        _Queue(
            name,
            queue.id,
            queue.min_offset,
            min(max(done.get(queue.id, 0), queue.min_offset), queue.max_offset),
            queue.max_offset,
        )
        for queue in topic.queues
    ]


def _list(arguments: argparse.Namespace) -> int:
    with forebay.open(arguments.store, mode="r") as store:
        groups = [name.removeprefix(_PREFIX) for name in store.topics if name.startswith(_PREFIX)]
        found = [_facts(group, _queues(store, group)) for group in sorted(groups)]
    if arguments.json:
        write_json(found)
    elif found:
        write_table(("group", "waiting", "in the log"), [tuple(one.values()) for one in found])
    else:
        write_line("no group has dead letters")
    return 0


def _facts(group: str, queues: list[_Queue]) -> dict[str, Any]:
    return {
        "group": group,
        "waiting": sum(one.waiting for one in queues),
        "messages": sum(one.end - one.first for one in queues),
    }


def _show(arguments: argparse.Namespace) -> int:
    left = arguments.limit
    rows = []
    with forebay.open(arguments.store, mode="r") as store:
        for queue in _queues(store, arguments.group):
            start = queue.first if arguments.all else queue.next
            for letter in queue.read(store, start=start, limit=left):
                left = None if left is None else left - 1
                if arguments.json:
                    write_json(as_dict(letter, full=True) | _origin(letter))
                else:
                    rows.append(_row(letter))
    if rows:
        head = ("queue", "offset", "stored", "original topic", "attempts", "key", "reason")
        write_table(head, rows)
    elif not arguments.json:
        write_line("no dead letters" if arguments.all else "no dead letters are waiting")
    return 0


def _origin(letter: forebay.Message) -> dict[str, Any]:
    """Return what a dead letter says about the message that it was."""
    system = letter.system_properties
    topics = [system[name] for name in _TOPICS if name in system]
    return {
        "original_topic": topics[0] if topics else None,
        "attempts": letter.reconsume_times,
        "reason": letter.properties.get(_REASON),
    }


def _row(letter: forebay.Message) -> tuple[object, ...]:
    origin = _origin(letter)
    return (
        letter.queue,
        letter.offset,
        letter.store_time.isoformat(timespec="seconds"),
        origin["original_topic"] or "unknown",
        origin["attempts"],
        letter.key or "",
        origin["reason"] or "",
    )


class _Redriver:
    """Sends dead letters again, each batch durably before it is counted."""

    def __init__(self, store: forebay.Store, group: str, to: str | None, total: int) -> None:
        self._store = store
        self._group = group
        self._to = to
        self._total = total
        self.sent: collections.Counter[str] = collections.Counter()

    def redrive(self, queue: _Queue, limit: int, progress: Progress) -> None:
        """Redrive the first `limit` waiting letters of a queue."""
        letters = queue.read(self._store, start=queue.next, limit=limit)
        while batch := list(itertools.islice(letters, _BATCH)):
            for at, letter in enumerate(batch):
                try:
                    self._send(letter)
                except (forebay.ForebayError, ValueError) as error:
                    if at > 0:
                        self._count(queue, batch[at - 1])
                    sent = self.sent.total()
                    where = f"dead letter {letter.queue}@{letter.offset}"
                    raise ValueError(f"{where}: {error}; {sent:,} were sent before it") from error
            self._count(queue, batch[-1])
            progress(self.sent.total(), self._total)

    def _send(self, letter: forebay.Message) -> None:
        topic = self._to or _origin(letter)["original_topic"]
        if topic is None:
            raise ValueError("it does not name its original topic: choose one with --to")
        properties = {name: value for name, value in letter.properties.items() if name != _REASON}
        self._store.send(
            topic,
            letter.body,
            keys=letter.keys,
            tags=letter.tags,
            properties=properties,
            timestamp=letter.born_time,
            flush=False,
        )
        self.sent[topic] += 1

    def _count(self, queue: _Queue, last: forebay.Message) -> None:
        self._store.flush()
        self._store.reset_offsets(self._group, queue.topic, {queue.queue: last.offset + 1})


def _redrive(arguments: argparse.Namespace) -> int:
    group = arguments.group
    with open_existing(arguments.store, adopt=arguments.adopt) as store:
        queues = _queues(store, group)
        total = sum(one.waiting for one in queues)
        left = total if arguments.limit is None else min(arguments.limit, total)
        redriver = _Redriver(store, group, arguments.to, left)
        with Progress("redriving") as progress:
            for queue in queues:
                limit = min(left, queue.waiting)
                redriver.redrive(queue, limit, progress)
                left -= limit
        waiting = sum(one.waiting for one in _queues(store, group))
    if arguments.json:
        write_json({"group": group, "sent": dict(redriver.sent), "waiting": waiting})
        return 0
    for topic, sent in sorted(redriver.sent.items()):
        write_line(f"sent {sent:,} to {topic}")
    write_line(f"waiting: {waiting:,}")
    return 0


def _purge(arguments: argparse.Namespace) -> int:
    group = arguments.group
    with open_existing(arguments.store, adopt=arguments.adopt) as store:
        purged = sum(one.waiting for one in _queues(store, group))
        if purged:
            store.reset_offsets(group, _PREFIX + group, "latest")
    if arguments.json:
        write_json({"group": group, "purged": purged})
    else:
        write_line(f"purged {purged:,} dead letters of {group}")
    return 0
