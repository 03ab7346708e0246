"""Dead letters: messages that a group of consumers could not handle.

They are messages of the topic ``%DLQ%<group>``, in a partition log ``dlq.<group>``. How far they
are redriven or purged is kept as the progress of the group in that topic, so a second run begins
where the first ended.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forebay._forebay import Message, Store
from forebay.errors import ForebayError
from forebay.given import check_text
from forebay.options import Progress

__all__ = [
    "LetterQueue",
    "Redriver",
    "dead_groups",
    "dead_topic",
    "letter_queues",
    "letter_queues_of",
    "origin",
    "prefixes",
]

#: Dead letters that are redriven with one flush. A process that dies may send these twice.
_BATCH = 100
#: System properties that name the topic of a dead letter: of Forebay and RocketMQ, and of newer
#: releases of RocketMQ.
_TOPICS = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
_REASON = "FOREBAY_REASON"


@dataclass(frozen=True)
class LetterQueue:
    """The dead letters of a group in one queue; those from `next` on are waiting."""

    topic: str
    queue: int
    first: int
    next: int
    end: int

    @property
    def waiting(self) -> int:
        """The number of dead letters that are neither redriven nor purged."""
        return self.end - self.next

    def read(self, store: Store, *, start: int, limit: int | None = None) -> Iterator[Message]:
        """Read from `start` on, at most `limit`."""
        offset, left = start, self.end - start if limit is None else limit
        while offset < self.end and left > 0:
            found = store.read(self.topic, self.queue, offset, min(left, _BATCH))
            yield from found.messages
            left -= len(found.messages)
            if found.next_offset <= offset:
                return
            offset = found.next_offset


def prefixes(store: Store) -> tuple[str, str]:
    """Return what topics of retries and of dead letters begin with; a group's name follows."""
    meanings = store._meanings
    return meanings.retry_prefix, meanings.dead_prefix


def dead_topic(store: Store, group: str) -> str:
    """Return the topic of a group's dead letters."""
    return prefixes(store)[1] + group


def dead_groups(store: Store) -> list[str]:
    """Return the groups that have dead letters, waiting or not, in the order of their names."""
    _, prefix = prefixes(store)
    return sorted(name.removeprefix(prefix) for name in store.topics if name.startswith(prefix))


def letter_queues(store: Store, group: str) -> list[LetterQueue]:
    """Return the dead letters of a group, by queue; none if there is no topic of them."""
    return letter_queues_of(store, [group])[group]


def letter_queues_of(store: Store, groups: Iterable[str]) -> dict[str, list[LetterQueue]]:
    """Return what `letter_queues` does for each of the groups, from one view of the store."""
    topics, progress = store.topics, store.groups
    found = {}
    for group in groups:
        name = dead_topic(store, group)
        done = {one.queue: one.committed for one in progress.get(group, []) if one.topic == name}
        topic = topics.get(name)
        found[group] = [
            LetterQueue(
                name,
                queue.id,
                queue.min_offset,
                min(max(done.get(queue.id, 0), queue.min_offset), queue.max_offset),
                queue.max_offset,
            )
            for queue in ([] if topic is None else topic.queues)
        ]
    return found


def origin(letter: Message) -> dict[str, Any]:
    """Return what a dead letter says about its original message."""
    system = letter.system_properties
    topics = [system[name] for name in _TOPICS if name in system]
    return {
        "original_topic": topics[0] if topics else None,
        "attempts": letter.reconsume_times,
        "reason": letter.properties.get(_REASON),
    }


class Redriver:
    """Sends dead letters again, each batch durably before it is counted.

    Parameters
    ----------
    store
        The store, open for writing.
    group
        The group of consumers.
    to
        The topic to send to; by default the original topic of each dead letter.
    """

    def __init__(self, store: Store, group: str, to: str | None = None) -> None:
        if to is not None:
            check_text("to", to, "a str")
        self._store = store
        self._group = group
        self._to = to
        #: How many were sent, by topic.
        self.sent: collections.Counter[str] = collections.Counter()

    def redrive(self, limit: int | None, progress: Progress) -> None:
        """Redrive waiting dead letters, at most `limit`; `progress` gets their number and total."""
        queues = letter_queues(self._store, self._group)
        left = sum(one.waiting for one in queues)
        left = total = left if limit is None else min(limit, left)
        for queue in queues:
            count = min(left, queue.waiting)
            self._redrive(queue, count, lambda done: progress(done, total))
            left -= count

    def _redrive(self, queue: LetterQueue, limit: int, progress: Callable[[int], object]) -> None:
        letters = queue.read(self._store, start=queue.next, limit=limit)
        while batch := list(itertools.islice(letters, _BATCH)):
            for at, letter in enumerate(batch):
                try:
                    self._send(letter)
                except (ForebayError, ValueError) as error:
                    if at > 0:
                        self._count(queue, batch[at - 1])
                    sent = self.sent.total()
                    where = f"dead letter {letter.queue}@{letter.offset}"
                    raise ValueError(f"{where}: {error}; {sent:,} were sent before it") from error
            self._count(queue, batch[-1])
            progress(self.sent.total())

    def _send(self, letter: Message) -> None:
        topic = self._to or origin(letter)["original_topic"]
        if topic is None:
            raise ValueError("it does not name its original topic: choose a topic to send to")
        send = functools.partial(
            self._store.send, topic, tags=letter.tags, timestamp=letter.born_time, flush=False
        )
        if self._store._meanings.in_kafka_form:
            headers = [(name, value) for name, value in letter.headers if name != _REASON]
            first = () if letter.key_bytes is None else (letter.key_bytes,)
            keys = (*first, *letter.keys[len(first) :])
            send(None if letter.is_null else letter.body, keys=keys, headers=headers)
        else:
            kept = {name: value for name, value in letter.properties.items() if name != _REASON}
            send(letter.body, keys=letter.keys, properties=kept)
        self.sent[topic] += 1

    def _count(self, queue: LetterQueue, last: Message) -> None:
        self._store.flush()
        self._store.reset_offsets(self._group, queue.topic, {queue.queue: last.offset + 1})
