"""The checks themselves: each kind of failure that they must detect makes them complain.

A failing engine is imitated by a list of messages, or by a store's answers, with one lie in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import law
import pytest
from law import Acknowledged, Fact, Found
from nursery import Nursery

import forebay

OPTIONS: dict[str, Any] = {"commitlog_file_size": 1 << 20}


def fill(store: forebay.Store) -> list[Acknowledged]:
    """Send what the harnesses send: single messages of two lives, and an atomic batch."""
    told: list[Acknowledged] = []
    for life in range(2):
        for number in range(20):
            fact = Fact(life, 0, number, -1, 0, 1)
            body, key = law.body_of(fact, 50), law.key_of(fact)
            sent = store.send("orders", body, key=key, queue=number % 2)
            place = ("orders", sent.queue, sent.offset)
            told.append(Acknowledged(*place, int(body[:8], 16), key, sent.position))
    facts = [Fact(1, 0, 20 + row, 7, row, 5) for row in range(5)]
    store.producer("orders", 1).send_batch(
        [law.body_of(fact, 9) for fact in facts],
        keys=[law.key_of(fact) for fact in facts],
        atomic=True,
    )
    return told


@pytest.fixture
def store() -> forebay.Store:
    return forebay.open(":memory:")


def flip(found: list[Found]) -> None:
    body = bytearray(found[4].body)
    body[-1] ^= 1
    found[4] = dataclasses.replace(found[4], body=bytes(body))


def repeat(found: list[Found]) -> None:
    # A record of an earlier life reappears after the end: a stale tail.
    last = max(found, key=lambda message: message.position)
    stale = next(message for message in found if message.body[9:11] == b"0 ")
    place = {"position": last.position + 500, "offset": last.offset + 1, "queue": last.queue}
    found.append(dataclasses.replace(stale, **place))


def swap(found: list[Found]) -> None:
    one, two = found[2], found[3]
    found[2] = dataclasses.replace(one, position=two.position)
    found[3] = dataclasses.replace(two, position=one.position)


def rename(found: list[Found]) -> None:
    found[6] = dataclasses.replace(found[6], keys=("another",))


def exchange(found: list[Found]) -> None:
    # A queue entry that points to another message of the queue.
    found[1] = dataclasses.replace(found[1], body=found[2].body, keys=found[2].keys)


def halve(found: list[Found]) -> None:
    rows = [message for message in found if b" 7 4 5|" in message.body]
    found.remove(rows[0])


def drop_the_last(found: list[Found]) -> None:
    found[:] = [message for message in found if b" 7 " not in message.body[8:30]]
    found.remove(max(found, key=lambda message: message.position))


def drop_one(found: list[Found]) -> None:
    del found[5]


LIES: dict[str, tuple[Callable[[list[Found]], None], str]] = {
    "a body without a checksum check": (flip, "the body is damaged"),
    "a stale tail": (repeat, "follows"),
    "a queue out of the order of the log": (swap, "stored before offset"),
    "a key of another message": (rename, "keys"),
    "a queue entry that is trusted": (exchange, "replaced by another message"),
    "half an atomic batch": (halve, "rows 4 of 5"),
    "an acknowledgement ahead of the log": (drop_the_last, "lost: "),
    "a message lost in the middle": (drop_one, "lost: "),
}


@pytest.mark.parametrize("name", LIES)
def test_a_false_list_of_messages_is_noticed(store: forebay.Store, name: str) -> None:
    told = fill(store)
    found, wrong = law.messages(store)
    wrong += law.judge(found, told, gapless=True)
    assert not wrong
    lie, expected = LIES[name]
    lie(found)
    assert any(expected in text for text in law.judge(found, told, gapless=True))


#: Those that the positions of a log show, which a partition log does not have.
BY_POSITION = ("a queue out of the order of the log",)


@pytest.mark.parametrize("name", [name for name in LIES if name not in BY_POSITION])
def test_a_false_list_of_messages_of_a_partition_log_is_noticed(tmp_path: Path, name: str) -> None:
    with forebay.open(tmp_path / "log", engine="partitionlog", default_queues=2) as log:
        told = fill(log)
        assert law.check(log, told) == []
        found, wrong = law.messages(log)
    assert not wrong
    lie, expected = LIES[name]
    lie(found)
    said = law.judge(found, told, gapless=True, by_queue=True)
    assert any(expected in text for text in said), said


class Liar:
    """A store with one method that returns a different answer."""

    def __init__(self, store: forebay.Store, **lies: Callable[..., Any]) -> None:
        self._store, self._lies = store, lies

    def __getattr__(self, name: str) -> Any:
        return self._lies.get(name) or getattr(self._store, name)


@dataclasses.dataclass
class Report:
    ok: bool
    damage: tuple[str, ...] = ()


def test_a_trusted_index_a_wrong_position_and_a_failed_verification_are_noticed(
    store: forebay.Store,
) -> None:
    told = fill(store)
    assert law.check(store, told) == []
    other = store.get("orders", 0, 3)
    lies: dict[str, tuple[str, Callable[..., Any]]] = {
        "leads to []": ("query", lambda *_: []),
        "leads to [(0, 3)]": ("query", lambda *_: [other]),
        "position": ("message", lambda _: other),
        "verify: not ok": ("verify", lambda: Report(False)),
    }
    for expected, (name, lie) in lies.items():
        wrong = law.check(Liar(store, **{name: lie}), told)  # type: ignore[arg-type]
        assert any(expected in text for text in wrong), expected


def test_a_read_that_skips_offsets_or_stops_is_noticed(store: forebay.Store) -> None:
    fill(store)

    def skipping(topic: str, queue: int, offset: int, **limits: Any) -> forebay.ReadBatch:
        return store.read(topic, queue, offset + (offset == 0), **limits)

    @dataclasses.dataclass
    class Nothing:
        next_offset: int
        messages: tuple[()] = ()

    _, wrong = law.messages(Liar(store, read=skipping))  # type: ignore[arg-type]
    assert any("no offsets 0 to 1" in text for text in wrong)
    stuck = Liar(store, read=lambda _topic, _queue, offset, **_: Nothing(offset))
    _, wrong = law.messages(stuck)  # type: ignore[arg-type]
    assert any("reading ends" in text for text in wrong)


def test_damage_on_disk_reaches_the_report_of_the_checking_process(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", **OPTIONS) as store:
        told = fill(store)
        last = store.get("orders", 0, 5).position
    ledger = tmp_path / "ledger"
    ledger.write_text("".join(it.line() + "\n" for it in told))
    task = {
        "role": "check",
        "root": str(tmp_path / "store"),
        "seed": 1,
        "options": OPTIONS,
        "ledger": str(ledger),
        "modes": ["r"],
        "gapless": True,
    }
    with Nursery() as nursery:
        whole = nursery.run(task)
        assert (whole.status, whole.complaints) == (0, [])
        never = Acknowledged("orders", 0, 999, 1, "never")
        ledger.write_text(ledger.read_text() + never.line() + "\n")
        assert any("lost: ack orders 0 999" in text for text in nursery.run(task).complaints)
        log = tmp_path / "store" / "commitlog" / f"{0:020}"
        with open(log, "r+b") as file:
            file.seek(last)
            file.write(bytes(100))
        assert any("lost: ack orders 0 5" in text for text in nursery.run(task).complaints)
        gone = nursery.run({**task, "root": str(tmp_path / "nothing")})
        assert gone.status == 1 and any("StoreNotFoundError" in text for text in gone.complaints)


def test_messages_removed_by_retention_are_not_missed_and_others_are(
    store: forebay.Store,
) -> None:
    told = fill(store)
    found, _ = law.messages(store)
    kept = sorted(found, key=lambda message: message.position)[4:]
    begins = {("orders", 0): 2, ("orders", 1): 2}
    assert law.judge(kept, told, gapless=True, retired=begins) == []
    assert any("lost: " in it for it in law.judge(kept, told, gapless=True))
    # A queue that begins later than the log hides messages; the sender's numbers reveal it.
    hidden = [message for message in kept if (message.queue, message.offset) != (1, 2)]
    begins["orders", 1] = 3
    assert law.judge(hidden, told, gapless=True, retired=begins)


def test_a_queue_that_begins_later_than_its_log_hides_messages(store: forebay.Store) -> None:
    told = fill(store)
    begin = told[4].position
    assert law.hidden(told, {("orders", 0): 2, ("orders", 1): 2}, begin) == []
    # All messages of the queue are hidden, or all of the log: no number has a gap.
    for queue, offset, number in ((0, 3, 4), (1, 3, 5), (1, 25, 39)):
        said = law.hidden(
            told, {("orders", 0): 2, ("orders", 1): 2, ("orders", queue): offset}, begin
        )
        assert any(told[number].line() in text for text in said), (queue, offset)
