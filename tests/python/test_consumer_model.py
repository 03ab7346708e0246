"""Random calls of consumers, against a model of what they must deliver.

One suite over all engines that can be written. A clock that the test moves decides about every
time-out: unsettled messages that come back, pauses between retries, delay levels and delivery
times. The model predicts each poll, the result of each settlement, and the progress of the group.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness import PROOF
from hypothesis import Phase
from hypothesis import strategies as some
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)
from machines import run, run_half_drawn
from meanings import MEANINGS

import forebay
import forebay.testing

QUEUES = 2
VISIBILITY_MS = 60_000
UNSETTLED_MAX = 5
ATTEMPTS_IN_PLACE = 3
RETRIES_MAX = 16
LEVELS_MS = [1_000, 5_000, 10_000, 30_000] + [60_000 * n for n in range(1, 11)]
LEVELS_MS += [1_200_000, 1_800_000, 3_600_000, 7_200_000]
ALL = 1_000


@dataclass
class Slot:
    """A message that was delivered, or passed over."""

    settled: bool = False
    out: bool = False
    refused: bool = False
    #: An earlier message of an ordered queue is delivered again before it.
    taken_back: bool = False
    attempts: int = 0
    deadline: int = 0
    #: Of the last delivery.
    serial: int = 0


@dataclass
class Lane:
    """A queue as the group consumes it."""

    #: Number and retries of each message, by offset.
    messages: list[tuple[int, int]] = field(default_factory=list)
    committed: int = 0
    slots: dict[int, Slot] = field(default_factory=dict)
    owner: int | None = None
    heir: int | None = None
    #: Where the group begins, once it reads the queue.
    is_known: bool = False

    @property
    def next(self) -> int:
        return self.committed + len(self.slots)

    @property
    def unsettled(self) -> list[int]:
        return [offset for offset, slot in sorted(self.slots.items()) if not slot.settled]

    def is_out(self, now: int) -> bool:
        slots = (self.slots[offset] for offset in self.unsettled)
        return any(slot.out and slot.deadline > now for slot in slots)

    def settle(self, offset: int) -> None:
        self.slots[offset].settled = True
        while self.committed in self.slots and self.slots[self.committed].settled:
            del self.slots[self.committed]
            self.committed += 1

    def recall(self, offset: int, due: int) -> None:
        for at in self.unsettled:
            if at >= offset:
                self.slots[at].out = False
                self.slots[at].deadline = due

    def take_back_after(self, offset: int) -> None:
        for at in self.unsettled:
            if at > offset:
                self.slots[at].out = False
                self.slots[at].taken_back = True

    def give_back(self, offset: int, now: int) -> None:
        slot = self.slots[offset]
        slot.out = False
        slot.attempts -= 1
        if not slot.taken_back:
            slot.deadline = now

    def leave(self, now: int) -> None:
        self.owner = None
        for at in self.unsettled:
            self.slots[at].out = False
            # A refused message keeps its pause.
            if not self.slots[at].refused:
                self.slots[at].deadline = now

    def inherit(self) -> None:
        if self.heir is not None and (self.owner is None or not self.unsettled):
            self.owner, self.heir = self.heir, None

    def give_to(self, member: int | None, now: int) -> None:
        self.heir = None
        if self.owner != member:
            self.heir = member
            if member is None:
                self.leave(now)
            self.inherit()

    def offered(self, now: int, order: str) -> list[int]:
        """Offsets that the owner gets now, redelivered ones before new ones."""
        if order == "queue" and self.is_out(now):
            return []
        again = [at for at in self.unsettled if self.slots[at].deadline <= now]
        if order == "queue" and len(again) < len(self.unsettled):
            # Nothing passes the first one that is not due.
            pairs = itertools.takewhile(
                lambda it: it[0] == it[1], zip(again, self.unsettled, strict=False)
            )
            return [at for at, _ in pairs]
        end = min(len(self.messages), self.committed + UNSETTLED_MAX)
        return again + list(range(self.next, end))

    def deliver(self, offset: int, serial: int, deadline: int) -> None:
        slot = self.slots.setdefault(offset, Slot())
        slot.out, slot.refused, slot.taken_back = True, False, False
        slot.attempts += 1
        slot.serial, slot.deadline = serial, deadline

    def reopen(self) -> None:
        """Forget what is not stored: everything but the committed offset."""
        self.slots.clear()
        self.owner = self.heir = None


@dataclass
class Waiting:
    """A message that is delivered later."""

    due: int
    #: One step delivers levels before times, each level in the order of sending.
    rank: tuple[int, ...]
    lane: tuple[str, int]
    message: tuple[int, int]


class Machine(RuleBasedStateMachine):
    """Consumers of one group. Subclasses choose the engine and the order."""

    engine = "memory"
    order = "none"

    def __init__(self) -> None:
        super().__init__()
        self.folder: Path | None = None
        self.clock = forebay.testing.Clock()
        self.sent = 0
        self.serial = 0
        self.sequence = 0
        self.lanes: dict[tuple[str, int], Lane] = {
            ("orders", queue): Lane() for queue in range(QUEUES)
        }
        self.waiting: list[Waiting] = []
        self.dead: list[int] = []
        self.handled: set[int] = set()
        self.consumers: dict[int, Any] = {}
        self.closed: dict[int, Any] = {}
        #: Consumer, lane, offset and serial of each delivery, with its message.
        self.deliveries: list[tuple[int, tuple[str, int], int, int, Any]] = []
        self.members = 0

    # --- the store ----------------------------------------------------------------------------

    @initialize()
    def open(self) -> None:
        if self.engine != "memory":
            self.folder = Path(tempfile.mkdtemp(prefix="forebay-model-"))
        self.open_store()
        self.store.create_topic("orders", queues=QUEUES)
        self.join()

    def open_store(self) -> None:
        path = ":memory:" if self.folder is None else self.folder / "store"
        sizes = {"commitlog_file_size": 1 << 20} if self.engine == "commitlog" else {}
        self.store = forebay.testing.open(path, engine=self.engine, clock=self.clock, **sizes)

    @property
    def retry_topic(self) -> str:
        """The topic of the group's messages to be retried."""
        return MEANINGS[self.engine].retries("billing")

    @property
    def dead_letters(self) -> str:
        """The topic of the group's dead letters."""
        return MEANINGS[self.engine].dead_letters("billing")

    def rank_of_level(self, level: int) -> tuple[int, int]:
        """Return the rank of a message with a level, which has a time in a partition log."""
        if self.engine == "partitionlog":
            return (1, self.now + LEVELS_MS[level - 1])
        return (0, level)

    @property
    def now(self) -> int:
        return self.clock._core.now_ms

    def new_consumer(self) -> Any:
        return self.store.consumer(
            "orders",
            group="billing",
            order=self.order,
            visibility_timeout=VISIBILITY_MS / 1000,
            max_unsettled=UNSETTLED_MAX,
            prefetch=ALL,
            retry_in_place=ATTEMPTS_IN_PLACE,
        )

    def claims(self) -> None:
        """Learn which consumer each queue goes to; what follows from it is up to the model."""
        for _ in range(2):
            # The first round lets each consumer find new queues.
            claims = {
                key: number
                for number, consumer in self.consumers.items()
                for key in consumer.assignment
            }
        for key, lane in self.lanes.items():
            claimed = claims.get(key)
            if claimed is not None:
                lane.is_known = True
            if lane.is_known and claimed != (lane.owner if lane.heir is None else lane.heir):
                lane.give_to(claimed, self.now)

    # --- what a test may do ---------------------------------------------------------------------

    @rule(queue=some.integers(0, QUEUES - 1))
    def send(self, queue: int) -> None:
        self.sent += 1
        sent = self.store.send("orders", str(self.sent).encode(), queue=queue)
        lane = self.lanes["orders", queue]
        assert sent.offset == len(lane.messages)
        lane.messages.append((self.sent, 0))

    @rule(queue=some.integers(0, QUEUES - 1), level=some.sampled_from([1, 2, 3, 18]))
    def send_by_level(self, queue: int, level: int) -> None:
        self.sent += 1
        self.store.send("orders", str(self.sent).encode(), queue=queue, delay_level=level)
        due = self.now + LEVELS_MS[level - 1]
        self.wait(due, self.rank_of_level(level), ("orders", queue), (self.sent, 0))

    @rule(queue=some.integers(0, QUEUES - 1), seconds=some.sampled_from([0.5, 1, 30, 4_000]))
    def send_at_time(self, queue: int, seconds: float) -> None:
        self.sent += 1
        self.store.send("orders", str(self.sent).encode(), queue=queue, delay=seconds)
        due = self.now + int(seconds * 1000)
        self.wait(due, (1, due), ("orders", queue), (self.sent, 0))

    def wait(
        self, due: int, rank: tuple[int, int], lane: tuple[str, int], message: tuple[int, int]
    ) -> None:
        self.sequence += 1
        self.waiting.append(Waiting(due, (*rank, self.sequence), lane, message))

    @rule(seconds=some.sampled_from([0.5, 1, 4, 10, 30, 60, 3_600]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        due = sorted((it for it in self.waiting if it.due <= self.now), key=lambda it: it.rank)
        self.waiting = [it for it in self.waiting if it.due > self.now]
        for topic, queue in dict.fromkeys(it.lane for it in due):
            self.delivered(topic, queue, [it for it in due if it.lane == (topic, queue)])

    def delivered(self, topic: str, queue: int, due: list[Waiting]) -> None:
        """Learn the order in which messages that fell due at once have come to a queue.

        The service may have been at work when the clock moved. Then it delivers those that it had
        looked at before in a later step. The order of each level, and of equal times, is kept.
        """
        messages = self.lanes.setdefault((topic, queue), Lane()).messages
        batch = self.store.read(topic, queue, len(messages), max_messages=len(due) + 1)
        got = [(int(it.body), it.reconsume_times) for it in batch.messages]
        assert sorted(got) == sorted(it.message for it in due), "not the messages that are due"
        for rank in {it.rank[:-1] for it in due}:
            expected = [it.message for it in due if it.rank[:-1] == rank]
            assert [it for it in got if it in expected] == expected, "another order in a level"
        messages += got

    @precondition(lambda self: len(self.consumers) < 3)
    @rule()
    def join(self) -> None:
        self.members += 1
        self.consumers[self.members] = self.new_consumer()
        self.claims()

    @precondition(lambda self: self.consumers)
    @rule(which=some.integers(0, 2))
    def leave(self, which: int) -> None:
        number = list(self.consumers)[which % len(self.consumers)]
        self.closed[number] = self.consumers.pop(number)
        self.closed[number].close()
        for lane in self.lanes.values():
            if lane.heir == number:
                lane.heir = None
            if lane.owner == number:
                lane.leave(self.now)
                lane.inherit()
        self.claims()

    @precondition(lambda self: self.consumers)
    @rule(which=some.integers(0, 2), most=some.sampled_from([1, 2, ALL]))
    def poll(self, which: int, most: int) -> None:
        number, offered = self.offered(which)
        polled = self.consumers[number].poll(most, timeout=0)
        count = sum(map(len, offered.values()))
        got = [self.received(number, offered, message) for message in polled]
        assert len(got) == min(most, count), f"{len(got)} of {count} messages came"

    def offered(self, which: int) -> tuple[int, dict[tuple[str, int], list[int]]]:
        """Return a consumer's number, and the offsets that it gets of each queue."""
        self.claims()
        number = list(self.consumers)[which % len(self.consumers)]
        mine = {key: it for key, it in self.lanes.items() if number in (it.owner, it.heir)}
        mine = {key: it for key, it in mine.items() if it.heir in (None, number)}
        for lane in mine.values():
            # The next owner does not wait for deliveries that have timed out.
            if lane.heir == number and not lane.is_out(self.now):
                lane.leave(self.now)
                lane.inherit()
        owned = {key: it for key, it in mine.items() if it.owner == number}
        return number, {key: it.offered(self.now, self.order) for key, it in owned.items()}

    def received(self, number: int, offered: dict[tuple[str, int], list[int]], message: Any) -> int:
        key, offset = self.next_of(offered, message)
        self.deliver(key, offset)
        self.deliveries.append((number, key, offset, self.serial, message))
        return offset

    def next_of(
        self, offered: dict[tuple[str, int], list[int]], message: Any
    ) -> tuple[tuple[str, int], int]:
        key, offset = self.place_of(message), message.offset
        assert offered[key][:1] == [offset], "not the next message of its queue"
        del offered[key][0]
        assert (int(message.body), message.reconsume_times) == self.lanes[key].messages[offset]
        assert message.topic == "orders"
        return key, offset

    def deliver(self, key: tuple[str, int], offset: int) -> None:
        self.serial += 1
        self.lanes[key].deliver(offset, self.serial, self.now + VISIBILITY_MS)
        if self.order == "queue":
            self.lanes[key].take_back_after(offset)

    @precondition(lambda self: self.consumers)
    @rule(which=some.integers(0, 2), most=some.integers(1, 3), refuses=some.booleans())
    def iterate(self, which: int, most: int, refuses: bool) -> None:
        """Take messages in a loop, which prefetches all that are offered; maybe refuse the last."""
        number, ahead = self.offered(which)
        if not any(ahead.values()):
            # A loop would wait. It looks all the same, and may get a queue whose turn it is.
            assert self.consumers[number].poll(1, timeout=0) == []
            return
        for key, offsets in ahead.items():
            for offset in offsets:
                self.deliver(key, offset)
        messages = iter(self.consumers[number])
        for turn in range(most):
            if not any(ahead.values()):
                # The next call would wait.
                break
            message = next(messages)
            if turn > 0:
                self.acknowledged(self.deliveries[-1])
            key, offset = self.next_of(ahead, message)
            serial = self.lanes[key].slots[offset].serial
            self.deliveries.append((number, key, offset, serial, message))
        else:
            if refuses:
                self.nack(0, None)
        del messages
        for key, offsets in ahead.items():
            for offset in offsets:
                self.lanes[key].give_back(offset, self.now)

    def place_of(self, message: Any) -> tuple[str, int]:
        """Topic and queue that a message was delivered from."""
        is_retry = message.reconsume_times > 0
        return (self.retry_topic if is_retry else "orders", message.queue)

    # --- settlements ----------------------------------------------------------------------------

    def expected(self, delivery: tuple[int, tuple[str, int], int, int, Any]) -> type | None:
        number, key, offset, serial, _ = delivery
        lane = self.lanes[key]
        if number not in self.consumers:
            return forebay.StoreClosedError
        if lane.owner != number:
            return forebay.OwnershipLostError
        slot = lane.slots.get(offset)
        if slot is None or slot.settled:
            return forebay.AlreadySettledError
        if slot.serial != serial:
            return forebay.OwnershipLostError
        if slot.taken_back:
            return forebay.OwnershipLostError
        return forebay.AlreadySettledError if slot.refused else None

    def is_taken_back(self, delivery: tuple[int, tuple[str, int], int, int, Any]) -> bool:
        number, key, offset, serial, _ = delivery
        slot = self.lanes[key].slots.get(offset, Slot())
        is_held = number in self.consumers and self.lanes[key].owner == number
        return is_held and slot.serial == serial and slot.taken_back

    def settle(self, which: int, call: str, *arguments: Any) -> tuple[Lane, int] | None:
        """Settle one of the last deliveries; None if the call was refused, as it had to be."""
        self.claims()
        delivery = self.deliveries[-1 - which % len(self.deliveries)]
        number, key, offset, _, message = delivery
        consumer = self.consumers.get(number) or self.closed[number]
        error = self.expected(delivery)
        if call == "nack" and self.is_taken_back(delivery):
            # It is delivered again in any case.
            consumer.nack(message, *arguments)
            return None
        if error is not None:
            with pytest.raises(error):
                getattr(consumer, call)(message, *arguments)
            return None
        getattr(consumer, call)(message, *arguments)
        return self.lanes[key], offset

    @precondition(lambda self: self.deliveries)
    @rule(which=some.integers(0, 7))
    def ack(self, which: int) -> None:
        if self.settle(which, "ack"):
            self.acknowledged(self.deliveries[-1 - which % len(self.deliveries)])

    def acknowledged(self, delivery: tuple[int, tuple[str, int], int, int, Any]) -> None:
        _, key, offset, _, _ = delivery
        lane = self.lanes[key]
        self.handled.add(lane.messages[offset][0])
        lane.settle(offset)
        lane.inherit()

    @precondition(lambda self: self.deliveries)
    @rule(which=some.integers(0, 7), level=some.sampled_from([None, None, 1]))
    def nack(self, which: int, level: int | None) -> None:
        settled = self.settle(which, "nack", level)
        if settled is None:
            return
        lane, offset = settled
        number, retries = lane.messages[offset]
        attempts = lane.slots[offset].attempts
        if self.order == "queue":
            if attempts < ATTEMPTS_IN_PLACE:
                lane.recall(offset, self.now + min(1000 << (attempts - 1), 30_000))
                lane.take_back_after(offset)
                lane.slots[offset].refused = True
                return
            self.dead.append(number)
        elif retries >= RETRIES_MAX:
            self.dead.append(number)
        else:
            level = min(3 + retries, 18) if level is None else level
            due = self.now + LEVELS_MS[level - 1]
            self.wait(due, self.rank_of_level(level), (self.retry_topic, 0), (number, retries + 1))
        lane.settle(offset)
        lane.inherit()

    @precondition(lambda self: self.deliveries)
    @rule(which=some.integers(0, 7))
    def reject(self, which: int) -> None:
        if settled := self.settle(which, "reject"):
            lane, offset = settled
            self.dead.append(lane.messages[offset][0])
            lane.settle(offset)
            lane.inherit()

    @precondition(lambda self: self.deliveries)
    @rule(which=some.integers(0, 7), seconds=some.sampled_from([1, 100]))
    def extend(self, which: int, seconds: int) -> None:
        if settled := self.settle(which, "extend", seconds):
            lane, offset = settled
            lane.slots[offset].out = True
            lane.slots[offset].deadline = self.now + 1000 * seconds

    @precondition(lambda self: self.folder is not None)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open_store()
        self.consumers.clear()
        self.deliveries.clear()
        for lane in self.lanes.values():
            lane.reopen()
        self.join()

    # --- what holds -----------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the progress and the dead letters with those of the model."""
        self.claims()
        seen = {(it.topic, it.queue): it for it in self.store.groups["billing"]}
        for key, lane in self.lanes.items():
            if lane.is_known:
                found = seen[key]
                assert found.committed == lane.committed
                assert found.unsettled == len(lane.unsettled)
                assert found.lag == len(lane.messages) - lane.committed
        read = self.store.read(self.dead_letters, 0, 0, max_messages=ALL)
        assert [int(message.body) for message in read.messages] == self.dead

    @rule()
    def look(self) -> None:
        self.check()

    def drain(self) -> None:
        """Let all time pass, and handle all that comes: nothing may be missing."""
        if not self.consumers:
            self.join()
        for _ in range(ALL):
            # Less than the longest delay, so that a retry that is delayed for too long is missed.
            self.pass_time(3_600)
            before = len(self.deliveries)
            for which in range(len(self.consumers)):
                self.poll(which, ALL)
            new = self.deliveries[before:]
            if not new and not self.waiting:
                break
            for which in range(len(new)):
                self.ack(which)
        assert self.handled | set(self.dead) == set(range(1, self.sent + 1))
        self.check()

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.drain()
        finally:
            if hasattr(self, "store"):
                self.store.close()
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)


STEPS = 200 if PROOF else 40


@pytest.mark.parametrize("engine", ["memory", "commitlog", "partitionlog"])
@pytest.mark.parametrize("order", ["none", "queue"])
def test_consumers_do_what_the_model_says(engine: str, order: str) -> None:
    machine = type("Chosen", (Machine,), {"engine": engine, "order": order})
    run_half_drawn(machine, 2_000 if PROOF else 25, STEPS)


class Faulty:
    """A consumer with one planted bug."""

    def __init__(self, plain: Any, bug: str) -> None:
        self._plain = plain
        self._bug = bug
        self._seen: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def poll(self, most: int, timeout: float) -> list[Any]:
        messages = self._plain.poll(most, timeout=timeout)
        if self._bug == "loses a message" and len(messages) > 2:
            self._plain.ack(messages.pop())
        if self._bug == "delivers a message again" and self._seen and not messages:
            return [self._seen[0]]
        if self._bug == "changes the order" and len(messages) > 1:
            messages.reverse()
        self._seen += messages
        return messages

    def __iter__(self) -> Any:
        return iter(self._plain)

    def ack(self, message: Any) -> None:
        if self._bug != "does not acknowledge":
            self._plain.ack(message)

    def extend(self, message: Any, seconds: float) -> None:
        if self._bug != "does not extend":
            self._plain.extend(message, seconds)

    def nack(self, message: Any, level: int | None) -> None:
        self._plain.nack(message, 18 if self._bug == "delays a retry for too long" else level)


@pytest.mark.parametrize(
    "bug",
    [
        "loses a message",
        "delivers a message again",
        "changes the order",
        "does not acknowledge",
        "does not extend",
        "delays a retry for too long",
    ],
)
def test_the_model_finds_a_consumer_with_a_bug(bug: str) -> None:
    class Planted(Machine):
        def new_consumer(self) -> Any:
            return Faulty(super().new_consumer(), bug)

    with pytest.raises((AssertionError, pytest.fail.Exception, forebay.ForebayError, KeyError)):
        run(Planted, 200, STEPS, phases=[Phase.generate])
