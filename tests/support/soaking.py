"""The processes of a soak: one writes, with upkeep beside it; others follow."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import law
from child import TOPICS, Sender, say

import forebay

#: How each sender sends: some wait for the disk, some do not.
WAYS = ("one", "flushed", "unwaited", "batch", "atomic", "arrow", "mixed", "flushed")
#: Average seconds between two sends, and between two steps of upkeep or reading.
PACE_S = 0.01
#: After this many steps each process reports its descriptors and its own memory.
USES_EVERY = 10


def say_uses() -> None:
    """Report the process's own memory in KiB, and its number of descriptors."""
    status = Path("/proc/self/status").read_text()
    own = int(status.split("RssAnon:")[1].split()[0])
    say(f"uses {own} {len(os.listdir('/proc/self/fd'))}")


class Upkeep:
    """Everything that may be done to a store beside its senders."""

    def __init__(self, store: forebay.Store, draw: random.Random, archive: Path) -> None:
        self.store, self.draw, self.archive = store, draw, archive
        self.kinds = (self.roll, self.repair, self.verify, self.copy, self.query, store.flush)

    def roll(self) -> None:
        # A quiet store has nothing to seal, and many short files would leave no long ones.
        if self.draw.random() < 0.2:
            self.store.roll()

    def repair(self) -> None:
        if steps := self.store.repair().steps:
            say(f"wrong (repair) {steps[0]}")

    def verify(self) -> None:
        if not (report := self.store.verify()).ok:
            say(*(f"wrong (verify) {damage}" for damage in report.damage))

    def copy(self) -> None:
        shutil.rmtree(self.archive, ignore_errors=True)
        self.store.archive(self.archive)

    def query(self) -> None:
        topic = self.draw.choice(TOPICS)
        for message in self.store.tail(topic, "earliest", follow=False):
            if law.fact_of(message.body) is None:
                say(f"wrong (tail) the body is damaged: {topic} {message.offset}")
            if self.draw.random() < 0.05 and not self.store.query(topic, message.keys[0]):
                # Retention first moves the beginning of the log, then deletes what is before it.
                begin = self.store.stats().min_position
                if message.position >= begin:
                    say(f"wrong (query) {message.keys[0]} at {message.position} of {begin} on")


def write(task: dict[str, Any]) -> None:
    """Send from several threads, with upkeep beside them, until killed or the time is up."""
    store = forebay.open(task["root"], **task["options"])
    for topic in TOPICS:
        store.create_topic(topic, 2)
    say("ready")
    life, seed = task["life"], task["seed"]
    over = threading.Event()
    draw = random.Random(f"{seed}.{life}")
    upkeep = Upkeep(store, draw, Path(task["archive"]))
    senders = [Sender(store, life, n, seed, patient=False) for n in range(len(WAYS))]

    def send(sender: Sender) -> None:
        sender.run(WAYS[sender.sender], 1)
        sender.told.clear()

    def keep_up() -> None:
        draw.choice(upkeep.kinds)()
        for _ in range(task["leaks"]):
            os.open(os.devnull, os.O_RDONLY)

    def work(doing: Callable[[], None], pace: random.Random) -> None:
        try:
            while not over.wait(pace.uniform(0, 2 * PACE_S)):
                doing()
        except BaseException:
            say(*("wrong " + line for line in traceback.format_exc().splitlines()))
            over.set()

    doings: list[Callable[[], None]] = [keep_up, *((lambda s=s: send(s)) for s in senders)]
    threads = [
        threading.Thread(target=work, args=(doing, random.Random(f"{seed}.{life}.{number}")))
        for number, doing in enumerate(doings)
    ]
    for thread in threads:
        thread.start()
    # The wait ends early if a thread has failed.
    waits = int(task["seconds"] / (USES_EVERY * PACE_S)) + 1
    for _ in range(waits):
        say_uses()
        if over.wait(USES_EVERY * PACE_S):
            break
    over.set()
    for thread in threads:
        thread.join()
    store.close()


def follow(task: dict[str, Any]) -> None:
    """Read beside writers that come and go: intact messages, in order, the same each time."""
    draw = random.Random(task["seed"])
    stop = threading.Event()
    ends: dict[tuple[str, int], int] = {}
    seen: dict[tuple[str, int, int], tuple[int, bytes]] = {}
    read = 0
    for opening in itertools.count():
        last = Path(task["stop"]).exists()
        with forebay.open(task["root"], "r") as store:
            for (topic, number, _), (offset, begin) in seen.items():
                again(store, topic, number, offset, begin)
            seen.clear()
            for _ in range(draw.randrange(1, 300)):
                for topic, number in itertools.product(TOPICS, (0, 1)):
                    read += step(store, topic, number, ends, seen)
                if stop.wait(draw.uniform(0, 2 * PACE_S)) or Path(task["stop"]).exists():
                    break
        if opening % 5 == 0:
            say_uses()
        if last:
            say(f"reads {read}")
            return


def step(
    store: forebay.Store,
    topic: str,
    number: int,
    ends: dict[tuple[str, int], int],
    seen: dict[tuple[str, int, int], tuple[int, bytes]],
) -> int:
    """Continue in one queue; only offsets that retention deleted may be skipped.

    Return the number of messages.
    """
    at = ends.get((topic, number), 0)
    batch = store.read(topic, number, at, max_messages=500)
    for message in batch.messages:
        begin = store.topics[topic].queues[number].min_offset if message.offset != at else 0
        if message.offset != at and not at < message.offset <= begin:
            say(f"wrong (reading) {topic} {number}: {message.offset} follows {at}, {begin=}")
        if law.fact_of(message.body) is None:
            say(f"wrong (reading) {topic} {number} {message.offset}: the body is damaged")
        at = message.offset + 1
        seen[topic, number, message.offset % 20] = message.offset, message.body[:8]
    ends[topic, number] = max(at, batch.next_offset) if not batch.messages else at
    return len(batch.messages)


def again(store: forebay.Store, topic: str, number: int, offset: int, begin: bytes) -> None:
    """Check that no other message has replaced one that was read."""
    try:
        message = store.get(topic, number, offset)
    except forebay.OffsetOutOfRangeError as error:
        if offset >= store.topics[topic].queues[number].min_offset:
            say(f"wrong (again) {topic} {number} {offset} was read and is gone: {error}")
    else:
        if message.body[:8] != begin:
            say(f"wrong (again) {topic} {number} {offset} is another message")
