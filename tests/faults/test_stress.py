"""Many senders of all kinds beside many reading processes, and threads of Python that go on."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import child
import law
import pytest
from child import Sender
from harness import LONG_S, PROOF
from law import Acknowledged

import forebay

SENDERS, READERS = 64, 8
SECONDS = 60.0 if PROOF else 1.0
WAYS = ("one", "one", "flushed", "unwaited", "batch", "atomic", "arrow", "mixed")
OPTIONS: dict[str, Any] = {
    "commitlog_file_size": 1 << 20,
    "queue_file_entries": 1_024,
    "index_slots": 1_024,
    "index_entries": 8_192,
    # A machine that does other things too may take long to make the next file.
    "busy_timeout": 30.0,
    "flush_timeout": 30.0,
    "default_queues": 2,
}


def follow(path: str, stop: Event, seen: Any) -> None:
    """Read beside the writer until told to stop: only whole messages, in order, without gaps."""
    ends: dict[tuple[str, int], int] = {}
    wrong: list[str] = []
    try:
        with forebay.open(path, "r") as store:
            while not wrong:
                told_to_stop, before = stop.is_set(), dict(ends)
                for topic in child.TOPICS:
                    for number in (0, 1):
                        wrong += step(store, topic, number, ends)
                if told_to_stop and ends == before:
                    break
    except BaseException as error:
        wrong.append(f"{type(error).__name__}: {error}")
    seen.put((ends, wrong[:5]))


def step(
    store: forebay.Store, topic: str, number: int, ends: dict[tuple[str, int], int]
) -> list[str]:
    wrong = []
    batch = store.read(topic, number, ends.get((topic, number), 0), max_messages=500)
    for message in batch.messages:
        expected = ends.get((topic, number), 0)
        if message.offset != expected:
            wrong.append(f"{topic} {number}: offset {message.offset} follows {expected}")
        if law.fact_of(message.body) is None:
            wrong.append(f"{topic} {number} {message.offset}: the body is damaged")
        ends[topic, number] = message.offset + 1
    return wrong


def send_all(store: forebay.Store, monkeypatch: pytest.MonkeyPatch) -> list[Acknowledged]:
    """Send from all threads until the time is over; what was acknowledged."""
    monkeypatch.setattr(child, "say", lambda *_: None)
    deadline = time.monotonic() + SECONDS
    errors: queue.Queue[BaseException] = queue.Queue()
    senders = [Sender(store, 0, number, 1, patient=False) for number in range(SENDERS)]

    def work(sender: Sender) -> None:
        try:
            while not sender.told or time.monotonic() < deadline:
                sender.run(WAYS[sender.sender % len(WAYS)], 1)
        except BaseException as error:
            errors.put(error)

    threads = [threading.Thread(target=work, args=(sender,)) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not errors.empty():
        raise errors.get()
    return [it for sender in senders for it in sender.told]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_senders_of_all_kinds_and_reading_processes_do_not_disturb_one_another(
    tmp_path: Path, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    context = multiprocessing.get_context("spawn")
    stop, seen = context.Event(), context.Queue()
    with forebay.open(path, flush=flush, **OPTIONS) as store:
        store.create_topic("orders", 2)
        readers: list[BaseProcess] = [
            context.Process(target=follow, args=(str(path), stop, seen)) for _ in range(READERS)
        ]
        for reader in readers:
            reader.start()
        told = send_all(store, monkeypatch)
        store.flush()
        assert law.check(store, told) == []
        stop.set()
        reports = [seen.get(timeout=LONG_S) for _ in readers]
        for reader in readers:
            reader.join(LONG_S)
        ends = {(name, q.id): q.max_offset for name, t in store.topics.items() for q in t.queues}
    for read, wrong in reports:
        assert not wrong
        assert read == {place: ends[place] for place in read}
        assert sum(read.values()) == len(told)
    with forebay.open(path, "r") as store:
        assert law.check(store, told) == []


def test_another_python_thread_runs_while_a_sender_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1

    with forebay.open(tmp_path / "store", flush="sync") as store:
        counter = threading.Thread(target=count)
        counter.start()
        before = counted
        rounds = 0
        for _ in range(200):
            start = counted
            store.send("orders", b"body")
            rounds += counted > start
        done.set()
        counter.join()
    # A wait that kept the interpreter would let the other thread run between the calls only.
    assert rounds > 20, f"{counted - before} steps in all"
