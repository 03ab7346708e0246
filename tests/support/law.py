"""The law that every harness checks: acknowledged messages survive, intact and in order.

A body names its sender and has its own checksum, so that any message of a store can be checked,
acknowledged or not:

    crc32 of the rest, life, sender, number, group, row, rows | filler

``life`` counts the processes that wrote a store, one after another; the numbers of a sender count
up from 0 within a life. Rows of an atomic batch share a group.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import forebay

#: Records around atomic batches; no test sender wrote them.
OWN_TOPIC = "rmq_sys_forebay_atomic"
#: First offset by queue.
Begins = Mapping[tuple[str, int], int]
#: Maximum number of messages, drawn at random, whose keys are looked up.
QUERIES_MAX = 300


class Fact(NamedTuple):
    """The facts that a body contains about itself."""

    life: int
    sender: int
    number: int
    group: int
    row: int
    rows: int


class Acknowledged(NamedTuple):
    """A message that was acknowledged to its sender."""

    topic: str
    queue: int
    offset: int
    crc: int
    key: str
    #: In the log; -1 if unknown, as of a row of a batch.
    position: int = -1

    def line(self) -> str:
        place = f"{self.topic} {self.queue} {self.offset}"
        return f"ack {place} {self.crc:08x} {self.key} {self.position}"

    @classmethod
    def of(cls, line: str) -> Acknowledged:
        _, topic, queue, offset, crc, key, position = line.split(" ")
        return cls(topic, int(queue), int(offset), int(crc, 16), key, int(position))


@dataclass(frozen=True)
class Found:
    """A message as a store returns it."""

    topic: str
    queue: int
    offset: int
    position: int
    keys: tuple[str, ...]
    body: bytes


def body_of(fact: Fact, size: int) -> bytes:
    """Make the body of a message; ``size`` bytes of it are padding."""
    text = " ".join(map(str, fact)).encode()
    filler = random.Random(f"{fact.life}.{fact.sender}.{fact.number}").randbytes(size)
    rest = text + b"|" + filler
    return b"%08x " % zlib.crc32(rest) + rest


def key_of(fact: Fact) -> str:
    return f"k{fact.life}-{fact.sender}-{fact.number}"


def fact_of(body: bytes) -> Fact | None:
    """Parse a body; None if it is not intact."""
    head, _, rest = body.partition(b" ")
    if len(head) != 8 or head != b"%08x" % zlib.crc32(rest):
        return None
    return Fact(*map(int, rest.partition(b"|")[0].split(b" ")))


def messages(store: forebay.Store) -> tuple[list[Found], list[str]]:
    """Read every queue from its first offset to its end, and report missing offsets."""
    found: list[Found] = []
    wrong: list[str] = []
    for name, topic in store.topics.items():
        for queue in topic.queues:
            at = queue.min_offset
            while at < queue.max_offset:
                batch = store.read(name, queue.id, at, max_messages=1_000)
                for message in batch.messages:
                    if message.offset != at:
                        wrong.append(f"{name} {queue.id}: no offsets {at} to {message.offset}")
                    at = message.offset + 1
                    place = (name, queue.id, message.offset, message.position)
                    if name != OWN_TOPIC:
                        found.append(Found(*place, message.keys, message.body))
                if batch.next_offset <= at and not batch.messages:
                    wrong.append(f"{name} {queue.id}: reading ends at {at} of {queue.max_offset}")
                    break
                at = max(at, batch.next_offset)
    return found, wrong


def begins_of(store: forebay.Store) -> dict[tuple[str, int], int]:
    return {(t, q.id): q.min_offset for t, topic in store.topics.items() for q in topic.queues}


def hidden(acknowledged: Iterable[Acknowledged], begins: Begins, min_position: int) -> list[str]:
    """Find messages before the first offset of their queue, but not before the log's beginning."""
    return [
        f"hidden, as {it.topic} {it.queue} begins at {begin} and the log at {min_position}: "
        + it.line()
        for it in acknowledged
        if it.offset < (begin := begins.get((it.topic, it.queue), 0))
        and it.position >= min_position
    ]


def judge(
    found: Iterable[Found],
    acknowledged: Iterable[Acknowledged],
    *,
    gapless: bool,
    retired: Begins | None = None,
    by_queue: bool = False,
) -> list[str]:
    """Compare the content of a store with the acknowledged messages.

    ``gapless``: the numbers of a sender have no gaps either, since no send failed. ``retired`` has
    the first offsets of queues whose oldest messages retention may have deleted. It deletes in log
    order, so a sender's numbers still have no gaps after the first. ``by_queue``: positions count
    in each queue, so only there are messages in the order in which they were sent, and retention
    deletes in each queue by itself.
    """
    wrong: list[str] = []
    if by_queue:
        found = sorted(found, key=lambda it: (it.topic, it.queue, it.offset))
    else:
        found = sorted(found, key=lambda message: message.position)
    places = {(message.topic, message.queue, message.offset): message for message in found}
    if len(places) != len(found):
        wrong.append("an offset occurs twice")
    last: dict[tuple[object, ...], int] = {}
    numbers: dict[tuple[int, int], set[int]] = {}
    ends: dict[tuple[str, int], int] = {}
    groups: dict[tuple[int, int, int], list[Fact]] = {}
    first: dict[tuple[int, int, int], Found] = {}
    for message in found:
        place = f"{message.topic} {message.queue} {message.offset}"
        fact = fact_of(message.body)
        if fact is None:
            wrong.append(f"{place}: the body is damaged")
            continue
        if message.keys != (key_of(fact),):
            wrong.append(f"{place}: keys {message.keys} of {key_of(fact)}")
        sender = (fact.life, fact.sender)
        line = (*sender, message.topic, message.queue) if by_queue else sender
        before = last.get(line, -1 if retired is None else fact.number - 1)
        if fact.number <= before or (gapless and not by_queue and fact.number != before + 1):
            wrong.append(f"{place}: number {fact.number} of {sender} follows {before}")
        last[line] = fact.number
        numbers.setdefault(sender, set()).add(fact.number)
        queue = (message.topic, message.queue)
        if message.offset <= ends.get(queue, -1):
            wrong.append(f"{place}: stored before offset {ends[queue]}")
        ends[queue] = message.offset
        if fact.group >= 0:
            groups.setdefault((*sender, fact.group), []).append(fact)
            first.setdefault((*sender, fact.group), message)
    begins = retired or {}
    if by_queue and gapless and not any(begins.values()):
        gaps = [one for one, its in numbers.items() if len(its) != max(its) + 1]
        wrong += [f"numbers of {one} have gaps" for one in gaps]
    for group, facts in groups.items():
        begin = first[group]
        cut = begins.get((begin.topic, begin.queue)) == begin.offset > 0
        if [fact.row for fact in facts] != list(range(facts[0].row * cut, facts[0].rows)):
            wrong.append(f"batch {group}: rows {len(facts)} of {facts[0].rows}")
    for message in acknowledged:
        if message.offset < begins.get((message.topic, message.queue), 0):
            continue
        there = places.get((message.topic, message.queue, message.offset))
        if there is None:
            wrong.append(f"lost: {message.line()}")
        elif int(there.body[:8], 16) != message.crc or there.keys != (message.key,):
            wrong.append(f"replaced by another message: {message.line()}")
    return wrong


def check(
    store: forebay.Store,
    acknowledged: Iterable[Acknowledged],
    *,
    gapless: bool = True,
    retires: bool = False,
    seed: int = 0,
) -> list[str]:
    """Check an open store against the law; return descriptions of what is wrong.

    ``retires``: messages that retention deleted do not count as missing.
    """
    found, wrong = messages(store)
    retired = begins_of(store) if retires else None
    by_queue = store.engine == "partitionlog"
    wrong += judge(found, acknowledged, gapless=gapless, retired=retired, by_queue=by_queue)
    # Without an index each query reads a topic.
    most = 3 if by_queue else QUERIES_MAX
    some = random.Random(seed).sample(found, min(len(found), most))
    for message in some:
        for key in message.keys:
            hits = [(hit.queue, hit.offset) for hit in store.query(message.topic, key)]
            if hits != [(message.queue, message.offset)]:
                at = f"{message.topic} {message.queue} {message.offset}"
                wrong.append(f"{at}: key {key} leads to {hits}")
        place = (
            f"{message.topic}-{message.queue}@{message.offset}" if by_queue else message.position
        )
        if store.message(place).offset != message.offset:
            wrong.append(f"{message.topic} {message.queue} {message.offset}: position")
    report = store.verify()
    if not report.ok:
        wrong += [f"verify: {damage}" for damage in report.damage] or ["verify: not ok"]
    return wrong
