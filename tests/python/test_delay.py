"""Messages with a delivery time: arguments, delivery, and processes that die."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import forebay

WAITING = "rmq_sys_forebay_delay"


@pytest.fixture(
    params=["memory", "commitlog", "commitlog sync", "partitionlog", "partitionlog sync"]
)
def store(request, tmp_path):
    engine, _, flush = request.param.partition(" ")
    path = ":memory:" if engine == "memory" else tmp_path / "store"
    with forebay.open(path, engine=engine, default_queues=4, flush=flush or None) as store:
        yield store


def test_a_message_is_delivered_after_its_delay_or_at_its_time(store):
    with store.consumer("orders", group="billing") as consumer:
        at = datetime.now(UTC) + timedelta(milliseconds=300)
        later = store.send("orders", b"later", deliver_at=at, queue=2, key="k")
        soon = store.producer("orders").send_nowait(b"soon", delay=timedelta(milliseconds=50))
        past = store.send("orders", b"past", deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
        assert (later.topic, later.queue) == (WAITING, 0)
        assert {soon.result(10).topic, past.topic} == {WAITING}
        messages = []
        while len(messages) < 3:
            (message,) = consumer.poll(1, timeout=30)
            consumer.ack(message)
            messages.append(message)
    # Which comes first is a matter of time. None comes before its time.
    (last,) = (message for message in messages if message.body == b"later")
    assert sorted(message.body for message in messages) == [b"later", b"past", b"soon"]
    assert (last.topic, last.queue, last.key, last.properties) == ("orders", 2, "k", {})
    told = int(last.system_properties["FOREBAY_DELIVER_AT"])
    # In a partition log, a message has the time when it was sent.
    assert store.engine == "partitionlog" or told <= last.store_timestamp
    assert 0 <= told - at.timestamp() * 1000 < 1


def test_a_delay_level_of_a_synchronous_store_is_not_forgotten(store):
    # The store is told of the message before it can be read.
    with store.consumer("orders", group="billing") as consumer:
        store.send("orders", b"1", delay_level=1)
        (message,) = consumer.poll(timeout=30)
        assert message.body == b"1"


@pytest.mark.parametrize("delay", [{"delay": 1}, {"delay": 0.001}, {"delay_level": 1}])
def test_a_delayed_message_for_the_topic_of_those_that_wait_is_refused(store, delay):
    schedule = store.producer("SCHEDULE_TOPIC_XXXX")
    for send in (schedule.send, schedule.send_nowait):
        with pytest.raises(
            forebay.InvalidTopicError, match="none can be delivered to it"
        ) as caught:
            send(b"x", **delay)
        assert caught.value.topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize(
    "arguments",
    [
        {"delay": 1, "deliver_at": datetime.now(UTC)},
        {"delay": 1, "delay_level": 1},
        {"deliver_at": datetime.now(UTC), "delay_level": 1},
    ],
)
def test_ways_to_delay_exclude_one_another(store, arguments):
    for send in (store.producer("orders").send, store.producer("orders").send_nowait):
        with pytest.raises(TypeError, match="only one of delay, deliver_at and delay_level"):
            send(b"x", **arguments)
    store.send("orders", b"x", delay=3600, delay_level=0)
    assert store.topics[WAITING].queues[0].max_offset == 1


def test_wrong_times_are_refused_by_name(store):
    for arguments, error, name in [
        ({"delay": -1}, forebay.InvalidOptionError, "delay"),
        ({"delay": "1"}, TypeError, "delay"),
        ({"delay": True}, TypeError, "delay"),
        ({"delay": timedelta(days=367)}, forebay.InvalidOptionError, "366 days"),
        ({"deliver_at": 1}, TypeError, "deliver_at"),
        ({"deliver_at": datetime(2020, 1, 1)}, forebay.InvalidOptionError, "deliver_at"),
        ({"deliver_at": datetime(9999, 1, 1, tzinfo=UTC)}, forebay.InvalidOptionError, "366 days"),
    ]:
        with pytest.raises(error, match=name):
            store.send("orders", b"x", **arguments)
    assert WAITING not in store.topics
    with pytest.raises(forebay.InvalidOptionError, match="reserved"):
        store.send("orders", b"x", properties={"FOREBAY_DELIVER_AT": "1"})
    with pytest.raises(forebay.InvalidTopicError):
        store.send(WAITING, b"x")


_SENDER = """
import os, signal, sys, forebay
store = forebay.open(sys.argv[1], engine=sys.argv[3], default_queues=2)
orders = store.producer("orders")
first = int(sys.argv[2])
for number in range(first, first + 200):
    orders.send(b"%d" % number, delay=number % 7 / 1000)
    if number == first + 150:
        os.write(1, b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_processes_that_are_killed_lose_no_message_and_deliver_none_twice(tmp_path, engine):
    path = tmp_path / "store"
    for turn in range(4):
        command = [sys.executable, "-c", _SENDER, str(path), str(turn * 200), engine]
        assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    with forebay.open(path) as store, store.consumer("orders", group="billing") as consumer:
        seen: Counter[int] = Counter()
        while len(seen) < 800:
            messages = consumer.poll(1000, timeout=30)
            assert messages
            seen.update(int(message.body) for message in messages)
            consumer.ack(messages)
        assert consumer.poll(timeout=0.2) == []
    assert set(seen) == set(range(800))
    assert set(seen.values()) == {1}
