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
import pyarrow
from child import TOPICS, Sender, say

import forebay

#: How each sender sends: some wait for the disk, some do not.
WAYS = ("one", "flushed", "unwaited", "batch", "atomic", "arrow", "mixed", "flushed")
#: Average seconds between two sends, and between two steps of upkeep or reading.
PACE_S = 0.01
#: Threads of upkeep in a writer: repair, verification, archive and the rest run at the same time.
UPKEEPERS = 3
#: How many of the steps of a reader scan.
SCANS = 0.1
#: How many of the messages that are read are looked up by their keys. Without an index each query
#: reads a topic.
QUERIES = {"commitlog": 0.05, "partitionlog": 0.002}
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
        kinds = (self.roll, self.repair, self.verify, self.copy, self.query, store.flush)
        self.kinds = [(threading.Lock(), kind) for kind in kinds]

    def step(self, draw: random.Random) -> None:
        """Do a kind of work, unless another thread is doing the same kind."""
        lock, kind = draw.choice(self.kinds)
        if lock.acquire(blocking=False):
            try:
                kind()
            finally:
                lock.release()

    def roll(self) -> None:
        # A quiet store has nothing to seal, and many short files would leave no long ones.
        if self.draw.random() < 0.2:
            self.store.roll()

    def repair(self) -> None:
        for step in self.store.repair().steps:
            # A segment that was just completed has its index entries a moment later. A repair that
            # comes first builds them.
            if "entries were missing" not in step.what or step.saved or step.lost:
                say(f"wrong (repair) {step}")

    def verify(self) -> None:
        if not (report := self.store.verify()).ok:
            say(*(f"wrong (verify) {damage}" for damage in report.damage))

    def copy(self) -> None:
        shutil.rmtree(self.archive, ignore_errors=True)
        self.store.archive(self.archive)

    def query(self) -> None:
        topic = self.draw.choice(TOPICS)
        queries = QUERIES[self.store.engine]
        for message in self.store.tail(topic, "earliest", follow=False):
            if law.fact_of(message.body) is None:
                say(f"wrong (tail) the body is damaged: {topic} {message.offset}")
            if self.draw.random() < queries and not self.store.query(topic, message.keys[0]):
                # Retention first moves the beginning of the log, then deletes what is before it.
                if self.store.engine == "partitionlog":
                    at, begin = message.offset, self.begin(message)
                else:
                    at, begin = message.position, self.store.stats().min_position
                if at >= begin:
                    say(f"wrong (query) {topic} {message.keys[0]} at {at} of {begin} on")

    def begin(self, message: forebay.Message) -> int:
        return self.store.topics[message.topic].queues[message.queue].min_offset


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

    def keep_up(draw: random.Random) -> None:
        upkeep.step(draw)
        for _ in range(task["leaks"]):
            os.open(os.devnull, os.O_RDONLY)

    def work(doing: Callable[[], None], pace: random.Random) -> None:
        try:
            while not over.wait(pace.uniform(0, 2 * PACE_S)):
                doing()
        except BaseException:
            say(*("wrong " + line for line in traceback.format_exc().splitlines()))
            over.set()

    draws = [random.Random(f"{seed}.{life}.upkeep.{number}") for number in range(UPKEEPERS)]
    doings: list[Callable[[], None]] = [
        *((lambda draw=draw: keep_up(draw)) for draw in draws),
        *((lambda s=s: send(s)) for s in senders),
    ]
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
    ends: Ends = {}
    seen: Seen = {}
    read = 0
    for opening in itertools.count():
        last = Path(task["stop"]).exists()
        with forebay.open(task["root"], "r") as store:
            for (topic, number, _), (offset, begin) in seen.items():
                again(store, topic, number, offset, begin)
            seen.clear()
            for _ in range(draw.randrange(1, 300)):
                for topic, number in itertools.product(TOPICS, (0, 1)):
                    scans = draw.random() < SCANS
                    read += (scan if scans else step)(store, topic, number, ends, seen)
                if stop.wait(draw.uniform(0, 2 * PACE_S)) or Path(task["stop"]).exists():
                    break
        if opening % 5 == 0:
            say_uses()
        if last:
            say(f"reads {read}")
            return


#: The offset after the last message that was read, by topic and queue.
Ends = dict[tuple[str, int], int]
#: Offset and beginning of some messages that were read, by topic, queue and a number.
Seen = dict[tuple[str, int, int], tuple[int, bytes]]


def step(store: forebay.Store, topic: str, number: int, ends: Ends, seen: Seen) -> int:
    """Continue in one queue; return the number of messages."""
    batch = store.read(topic, number, ends.get((topic, number), 0), max_messages=500)
    rows = [(message.offset, message.body) for message in batch.messages]
    take(store, topic, number, rows, ends, seen)
    if not rows:
        ends[topic, number] = max(ends[topic, number], batch.next_offset)
    return len(rows)


def scan(store: forebay.Store, topic: str, number: int, ends: Ends, seen: Seen) -> int:
    """As `step`, with a scan to the end of the queue."""
    at = max(ends.get((topic, number), 0), store.topics[topic].queues[number].min_offset)
    columns = ["offset", "body"]
    question = store.scan(topic, queues=[number], columns=columns, start={number: at})
    try:
        table = pyarrow.table(question)
    except forebay.OffsetOutOfRangeError:
        # Retention took the first message meanwhile.
        return 0
    bodies = table["body"].to_pylist()
    rows = list(zip(table["offset"].to_pylist(), bodies, strict=True))
    take(store, topic, number, rows, ends, seen)
    return len(rows)


def take(
    store: forebay.Store,
    topic: str,
    number: int,
    rows: list[tuple[int, bytes]],
    ends: Ends,
    seen: Seen,
) -> None:
    """Check messages that follow each other; only what retention deleted may be skipped."""
    at = ends.get((topic, number), 0)
    for offset, body in rows:
        begin = store.topics[topic].queues[number].min_offset if offset != at else 0
        if offset != at and not at < offset <= begin:
            say(f"wrong (reading) {topic} {number}: {offset} follows {at}, {begin=}")
        if law.fact_of(body) is None:
            say(f"wrong (reading) {topic} {number} {offset}: the body is damaged")
        at = offset + 1
        seen[topic, number, offset % 20] = offset, body[:8]
    ends[topic, number] = at


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
