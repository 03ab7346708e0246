"""Processes that consume from a shared store are killed and stopped, and the others go on.

Senders and consumers are killed at random moments and started again; some consumers are stopped for
longer than their session time-out. Everything that was sent must be settled, by one owner of its
queue at a time, in order; what was settled may come again only in the documented windows. One of
them: no process is left, so the next one begins where progress was saved last. Another one: the
process that delivers retries dies before it has saved how far it was. Consumers refuse some
messages, which come again through the retry topic, or with `order="queue"` in place.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deliveries import (
    SLACK_MS,
    SLACK_NS,
    Begun,
    Death,
    Delivered,
    Event,
    Lost,
    Postponed,
    Refusing,
    Settled,
    handled,
    perhaps_handled,
    read,
    violations,
)
from harness import LONG_S, PROOF, seed
from holding import stopped

import forebay

SEED = seed()
#: The long form tells two stories of each engine.
SECONDS = 900.0 if PROOF else 20.0
SENDERS, CONSUMERS, QUEUES = 2, 3, 6
#: Seconds without a sign of life after which a consumer loses its queues.
SESSION = 1.0
#: Seconds between two messages of a sender: a long run keeps fewer of them.
PAUSE = 0.01 if PROOF else 0.001
#: Seconds for everything to be settled at the end.
PATIENCE = 90.0
SIZES: dict[str, dict[str, Any]] = {
    "commitlog": {
        "commitlog_file_size": 1 << 20,
        "queue_file_entries": 4096,
        "index": False,
        "default_queues": QUEUES,
    },
    "partitionlog": {
        "engine": "partitionlog",
        "segment_bytes": 1 << 20,
        "default_queues": QUEUES,
    },
}
#: Without PROOF the stories take turns: each run tells that of one engine and one order.
ENGINES = list(SIZES) if PROOF else [random.Random(f"{SEED} engine").choice(list(SIZES))]
ORDERS = ["none", "queue"] if PROOF else [random.Random(f"{SEED} order").choice(["none", "queue"])]

SENDER = """
import os, sys, time, forebay
path, journal, sizes, _, pause, _ = sys.argv[1:7]
name = os.path.basename(journal)
store = forebay.open(path, mode="share", busy_timeout=60, **eval(sizes))
open(os.path.join(os.path.dirname(journal), "joined-" + name), "x").close()
orders = store.producer("orders")
out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
while True:
    orders.send(b"%s-%d" % (name.encode(), number))
    os.write(out, b"%d\\n" % number)
    number += 1
    time.sleep(float(pause))
"""

CONSUMER = """
import os, sys, time, forebay
path, journal, sizes, session, _, order = sys.argv[1:7]
name = os.path.basename(journal)
store = forebay.open(path, mode="share", busy_timeout=60, **eval(sizes))
open(os.path.join(os.path.dirname(journal), "joined-" + name), "x").close()
options = {"order": order, "session_timeout": float(session)}
consumer = store.consumer("orders", group="workers", **options)
out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
now = time.monotonic_ns
# A message that is refused in place holds up its queue for a second.
each, refused = (50, b"N") if order == "none" else (500, b"P")
handled = os.getpid() % each
while True:
    try:
        messages = consumer.poll(20, timeout=1)
    except forebay.OwnershipLostError:
        os.write(out, b"L %d\\n" % now())
        continue
    time_of = now()
    def line(what, message):
        kind = b"retry" if message.reconsume_times else b"first"
        place = b"%s %d %d %s" % (kind, message.queue, message.offset, message.body)
        return b"%s %s\\n" % (what, place)
    delivered = [(b"D %d %d" % (time_of, it.store_timestamp), it) for it in messages]
    os.write(out, b"".join(line(what, message) for what, message in delivered))
    taken_back = set()
    for message in messages:
        if message.queue in taken_back:
            continue
        handled += 1
        begin = now()
        try:
            if handled % each == 0 and message.reconsume_times < 2:
                os.write(out, line(b"R %d" % begin, message))
                consumer.nack(message, delay_level=1)
                os.write(out, line(refused + b" %d %d" % (begin, now()), message))
                if order == "queue":
                    taken_back.add(message.queue)
                continue
            os.write(out, line(b"B %d" % begin, message))
            consumer.ack(message)
        except forebay.OwnershipLostError:
            os.write(out, b"L %d\\n" % now())
            continue
        os.write(out, line(b"S %d %d" % (begin, now()), message))
"""


class Herd:
    """The processes that share one store."""

    def __init__(self, root: Path, engine: str, order: str) -> None:
        self.path, self.draw, self.root = root / "store", random.Random(SEED), root
        self.engine, self.order = engine, order
        self.living: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: set[str] = set()
        self.started = 0
        #: Whether consumers may end by an error: the test has overwritten what they share.
        self.is_sabotaged = False
        #: When the last process died that had the store open.
        self.deserted: list[int] = []
        self.deaths: list[Death] = []
        #: When the progress of delivery was saved last, in ms of the wall clock.
        self.saved = 0

    def start(self, kind: str) -> str:
        """Start a sender (``s``) or a consumer (``c``)."""
        name = f"{kind}{self.started}"
        self.started += 1
        arguments = [str(self.path), str(self.root / name), repr(SIZES[self.engine]), str(SESSION)]
        arguments += [str(PAUSE), self.order]
        program = SENDER if kind == "s" else CONSUMER
        command = [sys.executable, "-c", program, *arguments]
        self.living[name] = subprocess.Popen(command, stderr=subprocess.PIPE)
        return name

    def kill(self, name: str) -> None:
        """Kill a process, which must be alive, or a consumer that a planted fault has ended."""
        process = self.living.pop(name)
        self.stopped.discard(name)
        ended = process.poll()
        before, saved = now_ms(), self.saved_at()
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[1].decode()
        # In a partition log the deliveries themselves say how far they are.
        if self.engine == "commitlog":
            self.deaths.append(Death(before, now_ms(), saved))
        # Python exits with 1 after an exception.
        is_refused = ended == 1 and "LogShrunkError" in told
        may_end = self.is_sabotaged and name.startswith("c") and is_refused
        assert ended is None or may_end, f"seed {SEED}: {name} ended with {ended}: {told}"
        if not any((self.root / f"joined-{other}").exists() for other in self.living):
            self.deserted.append(time.monotonic_ns())

    def saved_at(self) -> int:
        """Return when the progress of delivery was saved last; 0 if it never was."""
        with contextlib.suppress(FileNotFoundError):
            table = self.path / "config" / "delayOffset.json"
            self.saved = max(self.saved, table.stat().st_mtime_ns // 1_000_000)
        return self.saved

    def violations(self) -> list[str]:
        """Return what contradicts the law by now."""
        return violations(self.journals(), self.sent(), self.deserted, self.deaths)

    def journals(self) -> dict[str, list[Event]]:
        """Return the events of all consumers."""
        return {path.name: read(path) for path in self.root.glob("c*")}

    def sent(self) -> set[str]:
        """Return the bodies whose sends were acknowledged."""
        return {
            f"{path.name}-{line}"
            for path in self.root.glob("s[0-9]*")
            for line in path.read_text().rpartition("\n")[0].splitlines()
        }

    def settled(self) -> set[str]:
        journals = self.journals()
        return handled(journals) | perhaps_handled(journals)

    def drain(self, patience: float = PATIENCE) -> None:
        """Wait until everything that was sent is settled, or the time is over."""
        deadline = time.monotonic() + patience
        while self.sent() - self.settled() and time.monotonic() < deadline:
            time.sleep(0.2)

    def await_saved(self) -> None:
        """Wait until the delivery of all that came through the retry topic is saved."""
        deadline = time.monotonic() + LONG_S
        while self.saved_at() + SLACK_MS < last_retry(self.journals()):
            assert time.monotonic() < deadline, f"seed {SEED}: the delivery is not saved"
            time.sleep(0.2)

    def end(self) -> None:
        for name in list(self.living):
            self.kill(name)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def last_retry(journals: dict[str, list[Event]]) -> int:
    """Return when the last message that was delivered came to the retry topic; 0 if none did."""
    events = [event for events in journals.values() for event in events]
    deliveries = [event for event in events if isinstance(event, Delivered)]
    return max((it.stored for it in deliveries if it.place[0] == "retry"), default=0)


@contextlib.contextmanager
def started(root: Path, engine: str, order: str) -> Iterator[Herd]:
    herd = Herd(root, engine, order)
    for _ in range(SENDERS):
        herd.start("s")
    for _ in range(CONSUMERS):
        herd.start("c")
    try:
        yield herd
        herd.end()
    finally:
        for process in herd.living.values():
            process.kill()
            process.communicate()


# The ids are numbers, since the parallel workers of pytest may draw different engines.
@pytest.fixture(params=ENGINES, ids=map(str, range(len(ENGINES))))
def herd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Herd]:
    with started(tmp_path, request.param, "none") as herd:
        yield herd


STORIES = list(itertools.product(ENGINES, ORDERS))


@pytest.fixture(params=STORIES, ids=map(str, range(len(STORIES))))
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Herd]:
    with started(tmp_path, *request.param) as herd:
        yield herd


def test_consumers_in_processes_outlive_one_another(story: Herd):
    herd, draw = story, story.draw
    resumes: dict[str, float] = {}
    await_settled(herd)
    end = time.monotonic() + SECONDS
    # On a busy machine most senders are killed before they send anything.
    while time.monotonic() < end or len(herd.sent()) <= 100:
        assert time.monotonic() < end + LONG_S, f"seed {SEED}: too little was sent"
        time.sleep(draw.uniform(0.05, 0.5))
        for name in [name for name, at in resumes.items() if at < time.monotonic()]:
            del resumes[name]
            if name in herd.living:
                herd.living[name].send_signal(signal.SIGCONT)
        name = draw.choice(list(herd.living))
        if name.startswith("c") and not resumes and draw.random() < 0.4:
            herd.living[name].send_signal(signal.SIGSTOP)
            resumes[name] = time.monotonic() + draw.choice([0.2, 2.5 * SESSION])
        else:
            herd.kill(name)
            resumes.pop(name, None)
            herd.start(name[0])
    for name in resumes:
        herd.living[name].send_signal(signal.SIGCONT)
    for name in [name for name in herd.living if name.startswith("s")]:
        herd.kill(name)
    herd.drain()
    if herd.engine == "commitlog":
        herd.await_saved()
    events = Counter(type(it).__name__ for its in herd.journals().values() for it in its)
    told = f"{herd.started} processes, {len(herd.sent())} messages, {dict(events)}"
    told += f", none left {len(herd.deserted)} times"
    print(f"FOREBAY_SEED={SEED}, {herd.engine}, order {herd.order}: {told}")
    found = herd.violations()
    assert not found, f"seed {SEED}: {len(found)}: {found[:5]}"
    herd.end()
    with forebay.open(herd.path) as store:
        assert store.verify().ok, f"seed {SEED}"
        for queue in store.groups["workers"]:
            assert queue.committed <= queue.max_offset, f"seed {SEED}: {queue}"


def await_settled(herd: Herd) -> None:
    """Wait until all consumers have settled something."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for process in herd.living.values():
            assert process.poll() is None, process.communicate()[1].decode()
        journals = herd.journals()
        busy = [name for name, events in journals.items() if any_settled(events)]
        if len(busy) == CONSUMERS:
            return
        assert time.monotonic() < deadline, f"seed {SEED}: only {busy} consume"
        time.sleep(0.02)


def any_settled(events: list[Event]) -> bool:
    return any(isinstance(event, Settled) for event in events)


COUNT_AT, TOPICS_AT, QUEUES_AT = 28, 69_632, 8_458_240
TOPIC_LEN, QUEUE_LEN = 512, 64
EPOCH = 1 << 48
#: Messages of each queue that a planted fault skips.
SKIPPED = 5


def rows(table: mmap.mmap) -> list[int]:
    """Return the places in the table of those queues of the topic that have an owner."""
    (count,) = struct.unpack_from("=I", table, COUNT_AT)
    found = []
    for at in range(QUEUES_AT, QUEUES_AT + count * QUEUE_LEN, QUEUE_LEN):
        owner, _, entry = struct.unpack_from("=III", table, at + 8)
        name = TOPICS_AT + entry * TOPIC_LEN + 256
        if owner and table[name : name + 6] == b"orders":
            found.append(at)
    return found


def two_owners(herd: Herd, table: mmap.mmap) -> None:
    """Pass queues on, again and again, without an epoch for the next owner."""
    deadline = time.monotonic() + PATIENCE
    for turn in itertools.count(1):
        if turn % 100 == 0:
            found = violations(herd.journals(), set())
            if any("two owners" in one for one in found) or time.monotonic() > deadline:
                return
        owners = {struct.unpack_from("=I", table, at + 8)[0] for at in rows(table)}
        for at in rows(table):
            (owner,) = struct.unpack_from("=I", table, at + 8)
            struct.pack_into("=I", table, at + 8, min(owners - {owner}, default=owner))
        (changes,) = struct.unpack_from("=I", table, 12)
        struct.pack_into("=I", table, 12, changes + 1)
        time.sleep(0.005)


def go_back(herd: Herd, table: mmap.mmap) -> None:
    """Move progress back over messages that are settled, and were before the slack of the law."""
    behind = [struct.unpack_from("=Q", table, at)[0] for at in rows(table)]
    time.sleep(SLACK_NS / 1e9 + 0.2)
    for at, word in zip(rows(table), behind, strict=False):
        committed = max(word % EPOCH - 10, 0)
        (now,) = struct.unpack_from("=Q", table, at)
        struct.pack_into("=Q", table, at, (now // EPOCH + 2) * EPOCH + committed)


def retry_again(herd: Herd, _: mmap.mmap) -> None:
    """Have retries delivered anew, although the progress of their delivery was saved."""
    if herd.engine != "commitlog":
        pytest.skip("in a partition log the deliveries themselves say how far they are")

    def first_retry() -> int:
        events = [event for events in herd.journals().values() for event in events]
        retries = [it for it in events if isinstance(it, Delivered) and it.place[0] == "retry"]
        return min((it.stored for it in retries), default=now_ms())

    deadline = time.monotonic() + PATIENCE
    while herd.saved_at() < first_retry() + 2 * SLACK_MS:
        assert time.monotonic() < deadline, f"seed {SEED}: the delivery is not saved"
        time.sleep(0.2)
    (herd.path / "config" / "delayOffset.json").unlink()
    # The first process of all delivers. While they are replaced, another one does.
    for name in list(herd.living):
        herd.kill(name)
        herd.start(name[0])


@pytest.mark.parametrize(
    ("sabotage", "complaint"),
    [
        (two_owners, "two owners"),
        (go_back, "delivered again"),
        # It takes 10 s.
        *([(retry_again, "again through the retry topic")] if PROOF else []),
    ],
)
def test_the_harness_finds_what_breaks_the_law(
    herd: Herd, sabotage: Callable[[Herd, mmap.mmap], None], complaint: str
):
    """A change of the table from outside imitates a bug in the hand-over."""
    await_settled(herd)
    herd.is_sabotaged = True
    with (
        open(herd.path / "forebay.groups", "r+b") as file,
        mmap.mmap(file.fileno(), 0) as table,
    ):
        sabotage(herd, table)
    for name in [name for name in herd.living if name.startswith("s")]:
        herd.kill(name)
    deadline = time.monotonic() + PATIENCE
    found: list[str] = []
    while time.monotonic() < deadline:
        time.sleep(0.2)
        found = violations(herd.journals(), herd.sent(), deaths=herd.deaths)
        if any(complaint in one for one in found):
            break
    assert any(complaint in one for one in found), found[:5]


def skip(herd: Herd, table: mmap.mmap) -> dict[int, range]:
    """Move progress past messages that wait, in the way of a reset.

    Returns their offsets in each queue that has as many, and one more.
    """
    consumers = [process for name, process in herd.living.items() if name.startswith("c")]
    deadline = time.monotonic() + PATIENCE
    skipped: dict[int, range] = {}
    with forebay.open(herd.path, mode="r") as reader:
        while not skipped:
            assert time.monotonic() < deadline, f"seed {SEED}: nothing waits"
            with contextlib.ExitStack() as stack:
                for consumer in consumers:
                    stack.enter_context(stopped(consumer))
                # One of those that are stopped may have a lock that the senders need.
                tried = time.monotonic() + 1
                while not skipped and time.monotonic() < tried:
                    time.sleep(0.02)
                    skipped = skip_waiting(reader, table)
            time.sleep(0.02)
    return skipped


def skip_waiting(reader: forebay.Store, table: mmap.mmap) -> dict[int, range]:
    skipped = {}
    for at in rows(table):
        (word,) = struct.unpack_from("=Q", table, at)
        (queue,) = struct.unpack_from("=I", table, at + 20)
        begin, end = word % EPOCH, word % EPOCH + SKIPPED
        if len(reader.read("orders", queue, end, max_messages=1)) > 0:
            struct.pack_into("=Q", table, at, word + 2 * EPOCH + SKIPPED)
            skipped[queue] = range(begin, end)
    return skipped


def test_the_harness_finds_messages_that_nobody_was_given(herd: Herd):
    """Only the messages that were passed over are judged: a slow machine has not settled others.

    The fault was met once a later message of the queue is settled: progress never goes back.
    """
    await_settled(herd)
    herd.is_sabotaged = True
    with (
        open(herd.path / "forebay.groups", "r+b") as file,
        mmap.mmap(file.fileno(), 0) as table,
    ):
        skipped = skip(herd, table)
    for name in [name for name in herd.living if name.startswith("s")]:
        herd.kill(name)
    deadline = time.monotonic() + PATIENCE
    met: set[int] = set()
    while not met:
        assert time.monotonic() < deadline, f"seed {SEED}: nothing is settled after {skipped}"
        time.sleep(0.02)
        met = {
            event.place[1]
            for events in herd.journals().values()
            for event in events
            if isinstance(event, Settled)
            and event.place[0] == "first"
            and event.offset >= skipped.get(event.place[1], range(1 << 48)).stop
        }
    herd.end()
    with forebay.open(herd.path) as store:
        lost = {
            store.get("orders", queue, offset).body.decode()
            for queue in met
            for offset in skipped[queue]
        }
    found = violations(herd.journals(), lost)
    assert any("settled by nobody" in one for one in found), found[:5]


def test_the_law_is_told_from_its_breaches():
    place = ("first", 0)
    first = [Delivered(10, place, 0, "a"), Settled(11, 12, place, 0, "a")]
    second = [Delivered(20, place, 1, "b"), Settled(21, 22, place, 1, "b")]
    assert violations({"c0": first, "c1": second}, {"a", "b"}) == []
    late = [Delivered(10, place, 0, "a"), Settled(21, 23, place, 0, "a")]
    (found,) = violations({"c0": late, "c1": second}, {"a", "b"})
    assert found.startswith("two owners")
    (found,) = violations({"c0": first}, {"a", "b"})
    assert "settled by nobody" in found
    again = [*first, Delivered(13, place, 0, "a")]
    (found,) = violations({"c0": again}, {"a"})
    assert found.startswith("out of order")
    assert violations({"c0": [*first, Lost(13), Delivered(14, place, 0, "a")]}, {"a"}) == []
    other = [Delivered(5_000_000_000, place, 0, "a")]
    (found,) = violations({"c0": first, "c1": other}, {"a"})
    assert found.startswith("delivered again")
    assert violations({"c0": first, "c1": other}, {"a"}, [5]) == [found]
    assert violations({"c0": first, "c1": other}, {"a"}, [13]) == []
    # The one before it was not settled, so it had to come again.
    hole = [
        Delivered(9, place, 0, "z"),
        Delivered(10, place, 1, "a"),
        Settled(11, 12, place, 1, "a"),
    ]
    retold = [Delivered(5_000_000_000, place, 1, "a")]
    assert violations({"c0": hole, "c1": retold}, {"a"}) == []
    # It died between the call and the line that says so.
    died = [Delivered(10, place, 0, "a"), Begun(11, place, 0, "a")]
    assert violations({"c0": died}, {"a"}) == []


def test_the_law_is_told_from_its_breaches_by_messages_that_are_refused():
    place, retry = ("first", 0), ("retry", 0)
    refused = [
        Delivered(10, place, 0, "a"),
        Refusing(11, place, 0, "a"),
        Settled(11, 12, place, 0, "a", final=False),
    ]
    once = [Delivered(20, retry, 0, "a", 1_000), Settled(21, 22, retry, 0, "a")]
    again = [Delivered(30, retry, 1, "a", 9_000), Settled(31, 32, retry, 1, "a")]
    assert violations({"c0": refused, "c1": once}, {"a"}) == []
    # The whole schedule was delivered anew.
    (found,) = violations({"c0": refused, "c1": once + again}, {"a"})
    assert found.startswith("again through the retry topic")
    # So may be what came since the last save, once the process that made it is dead.
    saved, unsaved = Death(8_000, 8_010, 5_000), Death(8_000, 8_010, 900)
    assert violations({"c0": refused, "c1": once + again}, {"a"}, (), [unsaved]) == []
    for death in saved, Death(12_000, 12_010, 900):
        (told,) = violations({"c0": refused, "c1": once + again}, {"a"}, (), [death])
        assert told == found
    # It died between the call and the line that says so, and was refused twice.
    died = {"c0": refused[:2], "c1": [Delivered(15, place, 0, "a"), *refused[1:], *once, *again]}
    assert violations(died, {"a"}) == []

    postponed = [*refused[:2], Postponed(11, 12, place, 0, "a")]
    later = [Delivered(40, place, 1, "b"), Settled(41, 42, place, 1, "b")]
    handled = [Delivered(30, place, 0, "a"), Settled(31, 32, place, 0, "a")]
    assert violations({"c0": postponed + handled + later}, {"a", "b"}) == []
    assert violations({"c0": postponed + later, "c1": handled}, {"a", "b"}) == []
    late = [Delivered(50, place, 0, "a"), Settled(51, 52, place, 0, "a")]
    for journals in {"c0": postponed + later + late}, {"c0": postponed + later, "c1": late}:
        assert any(it.startswith("passed over") for it in violations(journals, {"a", "b"}))
