"""Groups of consumers: delivery, settling, order, sharing, retries, and what is stored."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from golden_stores import unpack
from meanings import MEANINGS

import forebay
import forebay.consumer
import forebay.dead_letters
import forebay.hooks
import forebay.serde
import forebay.testing


@pytest.fixture(params=["memory", "commitlog", "partitionlog"])
def store(request, tmp_path):
    path = ":memory:" if request.param == "memory" else tmp_path / "store"
    with forebay.open(path, engine=request.param, default_queues=4) as store:
        yield store


@pytest.fixture(params=["commitlog", "partitionlog"])
def files(request, tmp_path):
    """Return the engine of a store in a directory."""
    return request.param


def of_group(store: forebay.Store) -> tuple[str, str]:
    """Return the topics of the retries and the dead letters of the group ``billing``."""
    meanings = MEANINGS[store.engine]
    return meanings.retries("billing"), meanings.dead_letters("billing")


def table_of(path: Path, engine: str) -> Path:
    name = "consumerOffset.json"
    return path / f"forebay.{name}" if engine == "partitionlog" else path / "config" / name


def fill(store: forebay.Store, count: int = 8, topic: str = "orders") -> None:
    bodies = [str(number).encode() for number in range(count)]
    keys = [str(number) for number in range(count)]
    store.producer(topic).send_batch(bodies, keys=keys, tags="paid", properties={"region": "eu"})


def numbers(messages) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_what_is_settled_is_not_delivered_again(store):
    fill(store)
    with store.consumer("orders", group="billing") as consumer:
        assert (consumer.group, consumer.topics) == ("billing", ("orders",))
        messages = consumer.poll(100, timeout=10)
        assert numbers(messages) == list(range(8))
        assert consumer.poll(timeout=0) == []
        consumer.ack(messages[0])
        consumer.ack(messages[1:6])
        with pytest.raises(forebay.AlreadySettledError) as caught:
            consumer.ack(messages[0])
        assert isinstance(caught.value, ValueError)
        assert (caught.value.topic, caught.value.offset) == ("orders", messages[0].offset)
        assert sum(consumer.lag().values()) >= 2
        assert consumer.assignment == [("orders", queue) for queue in range(4)]
    with store.consumer(["orders"], group="billing") as consumer:
        assert set(numbers(messages[6:])) <= set(numbers(consumer.poll(100, timeout=10)))
    with store.consumer("orders", group="other") as consumer:
        assert len(consumer.poll(100, timeout=10)) == 8


def test_iterating_acknowledges_the_previous_message(store):
    fill(store)
    with store.consumer("orders", group="billing", prefetch=3) as consumer:
        seen = []
        for message in consumer:
            seen.append(message)
            if len(seen) == 5:
                break
        # The fifth is unsettled; what was taken ahead is due at once.
        rest = consumer.poll(100, timeout=10)
        assert numbers(seen + rest) == list(range(8))
        for message in seen[:4]:
            with pytest.raises(forebay.AlreadySettledError):
                consumer.ack(message)
        consumer.ack(seen[4])
    with store.consumer("orders", group="manual", ack="manual") as consumer:
        first = [next(iter(consumer)) for _ in range(1)]
        consumer.ack(first)


def test_a_refused_message_comes_back_with_its_own_topic(store):
    fill(store, 1)
    with store.consumer("orders", group="billing") as consumer:
        (message,) = consumer.poll(timeout=10)
        consumer.nack(message, delay_level=1)
        (again,) = consumer.poll(timeout=30)
        assert (again.topic, again.body, again.key, again.tags) == ("orders", b"0", "0", "paid")
        assert (again.reconsume_times, again.properties) == (1, {"region": "eu"})
        assert again.system_properties["ORIGIN_MESSAGE_ID"] == message.message_id
        consumer.reject(again, reason="no such order")
    retry, dead_letters = of_group(store)
    (dead,) = store.read(dead_letters, 0, 0).messages
    assert (dead.body, dead.reconsume_times) == (b"0", 2)
    assert dead.properties == {"region": "eu", "FOREBAY_REASON": "no such order"}
    assert store.topics[retry].queues


def test_what_goes_through_a_partition_log_again_keeps_all_that_it_had(tmp_path):
    clock = forebay.testing.Clock()
    headers = (("dup", b"\xff"), ("dup", b""), ("nil", None))
    path = tmp_path / "log"
    with (
        forebay.testing.open(path, engine="partitionlog", clock=clock) as store,
        store.consumer("orders", group="bill.ing") as consumer,
    ):
        sent = store.send("orders", None, keys=[b"\xff", "2"], tags="paid", headers=headers)
        (message,) = consumer.poll(timeout=10)
        consumer.nack(message)
        for seconds, count in ((9.9, 0), (0.2, 1)):
            clock.advance(seconds)
            messages = consumer.poll(timeout=0)
            assert len(messages) == count
        (again,) = messages
        consumer.reject(again, reason="no such order")
        (dead,) = store.read("dlq.bill.ing", 0, 0).messages
        assert forebay.dead_letters.origin(dead) == {
            "original_topic": "orders",
            "attempts": 2,
            "reason": "no such order",
        }
        forebay.dead_letters.Redriver(store, "bill.ing").redrive(None, lambda done, total: None)
        (redriven,) = consumer.poll(timeout=0)
        consumer.ack(redriven)
        found = [message, again, dead, redriven]
        assert {it.key_bytes for it in found} == {b"\xff"}
        assert {it.keys[1:] for it in found} == {("2",)}
        assert {it.tags for it in found} == {"paid"}
        assert all(it.is_null for it in found)
        assert {it.born_timestamp for it in found} == {sent.timestamp}
        assert [it.headers for it in (message, again, redriven)] == [headers] * 3
        assert dead.headers == (*headers, ("FOREBAY_REASON", b"no such order"))
        assert [it.reconsume_times for it in found] == [0, 1, 2, 0]
        assert again.topic == redriven.topic == "orders"
        assert again.system_properties["ORIGIN_MESSAGE_ID"] == message.message_id
        assert (message.system_properties, redriven.system_properties) == ({}, {})
    names = {it.name for it in path.iterdir() if it.is_dir()}
    assert {name.rpartition("-")[0] for name in names} == {
        "orders",
        "retry.bill.ing",
        "dlq.bill.ing",
        "rmq_sys_forebay_delay",
    }


def test_in_an_ordered_queue_a_refused_message_holds_up_the_later_ones(store):
    fill(store, 6)
    orders = store.producer("orders", queue=0)
    for number in range(100, 103):
        orders.send(str(number).encode())
    with store.consumer("orders", group="billing", order="queue", retry_in_place=1) as consumer:
        messages = consumer.poll(100, timeout=10)
        first = next(message for message in messages if message.queue == 0)
        later = [message for message in messages if message.queue == 0][1:]
        consumer.nack(first)
        consumer.ack(later)
        retry, dead_letters = of_group(store)
        assert store.read(dead_letters, 0, 0).messages[0].body == first.body
        assert retry not in store.topics


def test_queues_are_shared_and_handed_over(store):
    fill(store, 40)
    one = store.consumer("orders", group="billing")
    two = store.consumer("orders", group="billing")
    assert len(one.assignment) == len(two.assignment) == 2
    first, second = one.poll(100, timeout=10), two.poll(100, timeout=10)
    assert numbers(first + second) == list(range(40))
    with pytest.raises(forebay.OwnershipLostError) as caught:
        two.ack(first[0])
    assert isinstance(caught.value, RuntimeError)
    one.close()
    one.close()
    with pytest.raises(forebay.StoreClosedError):
        one.poll(timeout=0)
    assert numbers(two.poll(100, timeout=10)) == numbers(first)
    two.ack(second)
    groups = store.groups["billing"]
    assert {queue.topic for queue in groups} == {"orders"}
    assert sum(queue.unsettled for queue in groups) == len(first)
    assert all(queue.owner is not None for queue in groups)
    two.close()


def test_a_group_begins_where_it_is_told(store):
    fill(store)
    everything = store.consumer("orders", group="all")
    assert len(everything.poll(100, timeout=10)) == 8
    everything.seek("latest")
    assert everything.poll(timeout=0) == []
    everything.seek({("orders", 0): 0})
    everything.seek(timedelta(hours=1))
    assert len(everything.poll(100, timeout=10)) == 8
    everything.close()
    begin = {
        "latest": 0,
        "earliest": 8,
        datetime(2020, 1, 1, tzinfo=UTC): 8,
        timedelta(minutes=5): 8,
    }
    for number, (start, count) in enumerate(begin.items()):
        with store.consumer("orders", group=f"g{number}", start=start) as consumer:
            assert len(consumer.poll(100, timeout=0)) == count
    store.reset_offsets("all", "orders", "earliest")
    with store.consumer("orders", group="all") as consumer:
        assert len(consumer.poll(100, timeout=10)) == 8


def test_a_start_is_refused_that_names_no_queue_of_the_topics(store):
    """Else the group would begin at its first message."""
    store.create_topic("orders", queues=1)
    for group in ("new", "new", "old"):
        with pytest.raises(forebay.UnknownTopicError, match="orders") as error:
            store.consumer("orders", group=group, start={("orders", 3): 5})
        assert error.value.queue == 3
        with pytest.raises(forebay.InvalidOptionError, match=r'^start is "Orders"') as error:
            store.consumer("orders", group=group, start={("Orders", 0): 5})
        assert error.value.name == "start"
        assert "Orders" not in store.topics
        store.consumer("orders", group="old").close()
    with pytest.raises(forebay.UnknownTopicError):
        store.consumer("bills", group="new", start={("bills", 99): 0})
    assert {"new"}.isdisjoint(store.groups)


def test_a_topic_that_is_named_twice_is_read_once(store, caplog):
    store.create_topic("t", queues=1)
    with (
        store.consumer(["t", "t"], group="g") as first,
        store.consumer(["t", "t"], group="g"),
    ):
        assert first.topics == ("t",)
    assert " of t;" in caplog.text


def test_a_bool_is_no_number(store):
    store.send("orders", b"x")
    with store.consumer("orders", group="g") as consumer:
        (message,) = consumer.poll(timeout=10)
        for call in (
            lambda: consumer.nack(message, delay_level=True),
            lambda: store.send("orders", b"x", delay_level=True),
            lambda: consumer.poll(True),
            lambda: store.create_topic("bills", queues=True),
            lambda: consumer.seek({("orders", message.queue): True}),
        ):
            with pytest.raises(TypeError, match="must be an integer, got bool"):
                call()


def test_a_retried_message_shows_its_own_topic(store):
    clock = forebay.testing.Clock()
    with forebay.testing.open(":memory:", clock=clock) as store:
        store.send("orders", b"x")
        with store.consumer("orders", group="g") as consumer:
            consumer.nack(consumer.poll(timeout=0)[0])
            clock.advance(60)
            (again,) = consumer.poll(timeout=0)
            assert again.reconsume_times == 1
            assert repr(again).startswith('<Message "orders" queue ')


def test_tags_choose_what_is_delivered(store):
    fill(store, 4)
    store.send("orders", b"9", tags="open")
    with store.consumer("orders", group="billing", tags="open || lost") as consumer:
        assert numbers(consumer.poll(100, timeout=10)) == [9]


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (3, 1), (2, 8)])
def test_run_calls_a_handler_and_has_failures_delivered_again(store, threads, batch):
    fill(store, 30)
    done: set[int] = set()
    failed: set[int] = set()
    consumer = store.consumer("orders", group="billing")

    def handle(given):
        messages = given if batch > 1 else [given]
        for message in messages:
            number = int(message.body)
            if number == 7 and number not in failed:
                failed.add(number)
                consumer.nack(message, delay_level=1)
                continue
            done.add(number)
        if len(done) == 30:
            threading.Thread(target=consumer.close).start()

    consumer.run(handle, threads=threads, batch=batch)
    assert (done, failed) == (set(range(30)), {7})


def test_progress_is_kept_in_rocketmqs_table(tmp_path, files):
    path = tmp_path / "store"
    with forebay.open(path, engine=files, default_queues=2) as store:
        fill(store)
        consumer = store.consumer("orders", group="billing")
        consumer.ack(consumer.poll(100, timeout=10))
        consumer.commit()
        table = json.loads(table_of(path, files).read_text())
        offsets = table["offsetTable"]["orders@billing"]
        assert sum(offsets.values()) == 8
        assert table["dataVersion"]["counter"] >= 1
    with forebay.open(path, mode="r") as store:
        assert sum(queue.committed for queue in store.groups["billing"]) == 8
        with pytest.raises(forebay.ReadOnlyError):
            store.consumer("orders", group="billing")


def test_a_delayed_message_is_delivered_and_an_overdue_one_after_a_restart(tmp_path, files):
    path = tmp_path / "store"
    with (
        forebay.open(path, engine=files) as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        store.send("orders", b"1", queue=2, delay_level=1)
        assert consumer.poll(timeout=0) == []
        (message,) = consumer.poll(timeout=30)
        assert (message.topic, message.queue, message.body) == ("orders", 2, b"1")
        consumer.ack(message)
        store.send("orders", b"2", delay_level=1)
    with forebay.open(path) as store, store.consumer("orders", group="billing") as consumer:
        (message,) = consumer.poll(timeout=30)
        assert message.body == b"2"
    if files == "commitlog":
        levels = json.loads((path / "config/delayOffset.json").read_text())
        assert levels["offsetTable"] == {"1": 2}


def test_wrong_arguments_are_refused_by_name(store):
    with pytest.raises(TypeError, match="group"):
        store.consumer("orders")
    wrong = [
        ({"group": "a b"}, "group"),
        ({"group": "g", "order": "fifo"}, "order"),
        ({"group": "g", "ack": "yes"}, "ack"),
        ({"group": "g", "prefetch": 0}, "prefetch"),
        ({"group": "g", "max_unsettled": 0}, "max_unsettled"),
        ({"group": "g", "retry_in_place": 0}, "retry_in_place"),
        ({"group": "g", "visibility_timeout": 0}, "visibility_timeout"),
        ({"group": "g", "start": "newest"}, "start"),
        ({"group": "g", "start": {("orders", 0): -1}}, "start"),
        ({"group": "g", "start": {"orders": 1}}, "start"),
    ]
    for options, name in wrong:
        with pytest.raises(forebay.InvalidOptionError, match=name):
            store.consumer("orders", **options)
    with pytest.raises(forebay.InvalidOptionError, match="topics"):
        store.consumer([], group="g")
    with pytest.raises(forebay.InvalidTopicError):
        store.consumer("a b", group="g")
    sent = store.send("orders", b"x")
    message = store.get("orders", sent.queue, sent.offset)
    with store.consumer("orders", group="g") as consumer:
        for call in (consumer.ack, consumer.nack, consumer.reject):
            with pytest.raises(forebay.InvalidOptionError, match="message"):
                call(message)
        with pytest.raises(TypeError, match="messages"):
            consumer.ack([b"x"])
        (mine,) = consumer.poll(timeout=10)
        for level in (0, 19, -1, 1000):
            with pytest.raises(forebay.InvalidOptionError, match="delay_level"):
                consumer.nack(mine, delay_level=level)
        with pytest.raises(forebay.InvalidOptionError, match="seconds"):
            consumer.extend(mine, -1)
        consumer.extend(mine, timedelta(minutes=1))
        with pytest.raises(forebay.OffsetOutOfRangeError):
            consumer.seek({("orders", sent.queue): 99})
        for arguments in ({"threads": 0}, {"batch": 0}):
            with pytest.raises(ValueError, match=r"must be (at least 1|from 1 to 1024), got 0"):
                consumer.run(print, **arguments)


@pytest.mark.usefixtures("uncollected")
def test_ctrl_c_ends_run_once_the_calls_have_returned(store):
    store.send("orders", b"x")
    main, left = threading.main_thread().ident, threading.Event()
    was_left = []

    def handle(message):
        signal.pthread_kill(main, signal.SIGINT)
        # Long enough for a `run` that does not wait for this call.
        was_left.append(left.wait(0.3))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # As Polars does when it is imported: then the signal ends no wait of the system.
    signal.siginterrupt(signal.SIGINT, False)
    try:
        with store.consumer("orders", group="billing") as consumer:
            with pytest.raises(KeyboardInterrupt):
                consumer.run(handle)
            left.set()
            assert was_left == [False]
            assert consumer.poll(timeout=0) == []
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("uncollected")
def test_ctrl_c_pressed_again_leaves_no_call_and_no_handler_of_signals(store):
    store.send("orders", b"x")
    main, left, seen = threading.main_thread().ident, threading.Event(), queue.SimpleQueue()
    was_left = []

    def press(number, frame):
        # Safe in the handler of a signal.
        seen.put(number)
        raise KeyboardInterrupt

    def handle(message):
        for _ in range(3):
            signal.pthread_kill(main, signal.SIGINT)
            seen.get()
        was_left.append(left.wait(0.3))

    before = signal.signal(signal.SIGINT, press)
    at_termination = signal.getsignal(signal.SIGTERM)
    try:
        with store.consumer("orders", group="billing") as consumer:
            with pytest.raises(KeyboardInterrupt):
                consumer.run(handle)
            left.set()
            assert was_left == [False]
            assert signal.getsignal(signal.SIGTERM) == at_termination
            assert consumer.poll(timeout=0) == []
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, at_termination)


class Unstopped:
    """Polls of a run that goes on."""

    is_stopped = False

    def pause(self, seconds):
        assert 0 < seconds <= 1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (forebay.BusyError("busy", waited_ms=1), True),
        (forebay.DiskFullError("full", path="log", needed=2, free=1), True),
        (forebay.DiskError("files", path="log", errno=errno.EMFILE), True),
        (forebay.DiskError("defect", path="log", errno=errno.EIO), False),
        (forebay.StoreFailedError("failed", appended=False, reason="defect"), False),
    ],
)
def test_only_what_passes_is_tried_again(store, caplog, error, passes):
    store.send("orders", b"x")
    outcomes = iter([error] * 9)

    def settle(message):
        for outcome in outcomes:
            raise outcome

    with store.consumer("orders", group="billing") as consumer:
        (message,) = consumer.poll(timeout=60)
    if passes:
        assert forebay.consumer._settle(Unstopped(), message, settle)
        (record,) = caplog.records
        assert str(error) in record.getMessage()
    else:
        with pytest.raises(type(error)):
            forebay.consumer._settle(Unstopped(), message, settle)
    assert len(list(outcomes)) == (0 if passes else 8)


_WORKER = """
import os, sys, forebay
store = forebay.open(sys.argv[1])
consumer = store.consumer("orders", group="billing")
def handle(message):
    os.write(1, message.body + b"\\n")
try:
    consumer.run(handle, threads=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
store.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "last"), [(signal.SIGTERM, []), (signal.SIGINT, ["interrupted"])]
)
def test_a_signal_ends_run_once_the_calls_have_returned(tmp_path, files, number, last):
    path = tmp_path / "store"
    with forebay.open(path, engine=files) as store:
        fill(store, 3)
    # A shell that runs in the background has SIGINT ignored.
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert worker.stdout is not None
    seen = sorted(worker.stdout.readline().strip() for _ in range(3))
    assert seen == ["0", "1", "2"]
    os.kill(worker.pid, number)
    rest, _ = worker.communicate()
    assert rest.split() == [*last, "closed"]
    assert worker.returncode == 0
    with forebay.open(path) as store, store.consumer("orders", group="billing") as consumer:
        assert consumer.poll(timeout=0) == []


def test_what_a_killed_process_had_not_settled_is_delivered_to_the_next(tmp_path, files):
    path = tmp_path / "store"
    with forebay.open(path, engine=files, default_queues=1) as store:
        fill(store, 10)
    code = """
import os, sys, signal, forebay
store = forebay.open(sys.argv[1])
consumer = store.consumer("orders", group="billing")
messages = consumer.poll(10, timeout=10)
consumer.ack(messages[:4])
consumer.ack(messages[6:])
consumer.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code, str(path)])
    assert killed.returncode == -signal.SIGKILL
    with forebay.open(path) as store, store.consumer("orders", group="billing") as consumer:
        # Those from the smallest unsettled offset on, whatever was settled after it.
        assert numbers(consumer.poll(100, timeout=10)) == list(range(4, 10))


def test_a_damaged_table_of_offsets_is_refused_and_stays(tmp_path, files):
    path = tmp_path / "store"
    with forebay.open(path, engine=files) as store:
        fill(store)
    table = table_of(path, files)
    table.write_text("{torn")
    with (
        forebay.open(path) as store,
        pytest.raises(forebay.CorruptError, match="consumerOffset"),
    ):
        store.consumer("orders", group="billing")
    assert table.read_text() == "{torn"


def test_writers_of_the_table_in_two_processes_lose_no_row(tmp_path):
    path = tmp_path / "store"
    code = """
import sys
from forebay.spark.group import record
for number in range(1, 101):
    record(sys.argv[1], f"stream-{number}", {("orders", 0): number})
"""
    with forebay.open(path, default_queues=1) as store:
        fill(store, 100)
        with store.consumer("orders", group="billing") as consumer:
            other = subprocess.Popen([sys.executable, "-c", code, str(path)])
            for message in consumer.poll(100, timeout=10):
                consumer.ack(message)
                consumer.commit()
            assert other.wait() == 0
    table = json.loads((path / "config/consumerOffset.json").read_text())["offsetTable"]
    assert table["orders@billing"] == {"0": 100}
    found = {name: offsets for name, offsets in table.items() if "stream" in name}
    assert found == {f"orders@stream-{number}": {"0": number} for number in range(1, 101)}


def test_a_broker_directory_keeps_its_tables_and_its_switches_are_honoured(tmp_path):
    path = unpack("broker", tmp_path)
    config = path / "config"
    names = ["consumerFilter.json", "subscriptionGroup.json", "consumerOrderInfo.json"]
    before = {name: (config / name).read_bytes() for name in names}
    with (
        forebay.open(path, adopt=True) as store,
        store.consumer("fx-orders", group="fx-group") as consumer,
    ):
        store.send("fx-orders", b"new")
        messages = consumer.poll(100, timeout=10)
        consumer.nack(messages[0], delay_level=1)
        consumer.ack(messages[1:])
    assert {name: (config / name).read_bytes() for name in names} == before
    text = before["subscriptionGroup.json"].decode()
    head, tail = text.split('"fx-group"', 1)
    tail = tail.replace('"consumeEnable":true', '"consumeEnable":false', 1)
    (config / "subscriptionGroup.json").write_text(head + '"fx-group"' + tail)
    with forebay.open(path) as store:
        with pytest.raises(forebay.InvalidOptionError, match="consumeEnable is false"):
            store.consumer("fx-orders", group="fx-group")
        store.consumer("fx-orders", group="other").close()


def test_a_handler_that_fails_is_logged_with_its_message(store, caplog):
    place = store.send("orders", b"x", queue=0)

    def fail(message):
        consumer.close()
        raise RuntimeError("no")

    with store.consumer("orders", group="billing") as consumer:
        consumer.run(fail)
    (record,) = caplog.records
    assert record.exc_info is not None
    text = f"topic orders queue 0 offset {place.offset}; will be retried"
    assert text in record.getMessage()


async def coroutine_function(*given):
    raise AssertionError("nobody awaits it")


def generator_function(*given):
    yield given


async def asynchronous_generator_function(*given):
    yield given


class Handler:
    async def __call__(self, *given):
        raise AssertionError("nobody awaits it")

    async def method(self, *given):
        raise AssertionError("nobody awaits it")


DEFERRED = [
    (coroutine_function, "a coroutine function"),
    (generator_function, "a generator function"),
    (asynchronous_generator_function, "an asynchronous generator function"),
    (Handler(), "a coroutine function"),
    (Handler().method, "a coroutine function"),
    (functools.partial(coroutine_function, 1), "a coroutine function"),
    (functools.partial(Handler(), 1), "a coroutine function"),
]


@pytest.mark.parametrize(("function", "kind"), DEFERRED)
def test_a_function_of_which_a_call_runs_nothing_is_refused(store, function, kind):
    """The call returns at once, and what it returns would be taken for success."""
    store.send("orders", b"x")
    with store.consumer("orders", group="g") as consumer:
        hooked = forebay.hooks.consumer(consumer, lambda message: None)
        for run in (consumer.run, hooked.run, forebay.serde.json().consumer(consumer).run):
            with pytest.raises(TypeError, match=f"^handler must .* got {kind}$"):
                run(function)
        with pytest.raises(TypeError, match=f"^hook must .* got {kind}$"):
            forebay.hooks.consumer(consumer, function)
        assert len(consumer.poll(timeout=10)) == 1
    with pytest.raises(TypeError, match=f"^hook must .* got {kind}$"):
        forebay.hooks.producer(store.producer("orders"), function)
    with pytest.raises(TypeError, match=f"^progress must .* got {kind}$"):
        store.verify(progress=function)


@pytest.mark.parametrize(
    ("wrap", "function"),
    [
        ("plain", coroutine_function),
        ("plain", generator_function),
        ("plain", asynchronous_generator_function),
        ("hooks", coroutine_function),
        ("serde", coroutine_function),
    ],
)
def test_a_handler_that_returns_what_has_not_run_has_failed(caplog, wrap, function):
    with (
        forebay.open(":memory:") as store,
        store.consumer("orders", group="g", order="queue") as plain,
    ):
        store.send("orders", b"1", queue=0)
        calls = []

        def handle(*given):
            calls.append(given)
            if len(calls) == 2:
                plain.close()
            return function(*given)

        entered = []
        wrapped = {
            "plain": plain,
            "hooks": forebay.hooks.consumer(plain, hook_into(entered)),
            "serde": forebay.serde.json().consumer(plain),
        }
        wrapped[wrap].run(handle)
    assert len(calls) == 2
    assert caplog.text.count("TypeError: handler must run to its end when called") == 2
    assert entered == (["TypeError"] * 2 if wrap == "hooks" else [])


def hook_into(entered):
    @contextlib.contextmanager
    def around(message):
        try:
            yield
        except BaseException as error:
            entered.append(type(error).__name__)
            raise

    return around


def test_a_consumer_that_is_left_without_a_queue_logs_the_remedy(store, caplog):
    store.create_topic("orders", queues=1)
    with store.consumer("orders", group="billing"):
        assert not caplog.records
        with store.consumer("orders", group="billing") as second:
            assert second.assignment == []
    (record,) = caplog.records
    assert "2 consumers for 1 queue(s) of orders" in record.getMessage()
    assert "create_topic" in record.getMessage()


def test_the_levels_of_delay_are_those_that_the_store_was_opened_with(tmp_path):
    clock = forebay.testing.Clock()
    with forebay.testing.open(tmp_path, clock=clock, delay_levels="2s 1m") as store:
        store.send("orders", b"1", delay_level=1)
        for level in (3, 256, -1):
            with pytest.raises(forebay.InvalidOptionError, match="delay_level") as error:
                store.send("orders", b"3", delay_level=level)
            assert "18" not in str(error.value)
    with (
        forebay.testing.open(tmp_path, clock=clock) as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        clock.advance(1.9)
        assert consumer.poll(timeout=0) == []
        clock.advance(0.1)
        (message,) = consumer.poll(timeout=0)
        consumer.nack(message)
        clock.advance(59)
        assert consumer.poll(timeout=0) == []
        clock.advance(1)
        assert len(consumer.poll(timeout=0)) == 1
    for levels in ("", "1", "0s", "1w", "1s,2s", "400d"):
        with pytest.raises(forebay.InvalidOptionError, match="delay_levels"):
            forebay.open(tmp_path / "new", delay_levels=levels)
    with pytest.raises(TypeError, match="delay_levels"):
        forebay.open(tmp_path / "new", delay_levels=18)


def test_a_level_has_no_effect_on_the_pauses_of_an_ordered_queue():
    clock = forebay.testing.Clock()
    with forebay.testing.open(":memory:", clock=clock, delay_levels="2s 1m") as store:
        store.send("orders", b"1")
        with store.consumer("orders", group="g", order="queue") as consumer:
            (message,) = consumer.poll(timeout=0)
            for level in (3, 256, -1, 0):
                with pytest.raises(forebay.InvalidOptionError, match="from 1 to 2, or None"):
                    consumer.nack(message, delay_level=level)
            consumer.nack(message, delay_level=2)
            assert consumer.poll(timeout=0) == []
            clock.advance(1)
            assert len(consumer.poll(timeout=0)) == 1


def test_reads_and_deliveries_are_counted(store):
    fill(store)
    store.get("orders", 0, 0)
    read = len(store.read("orders", 0, 0).messages) + len(store.query("orders", "1"))
    read += len(list(store.tail("orders", start="earliest", follow=False)))
    with store.consumer("orders", group="billing") as consumer:
        messages = consumer.poll(100, timeout=10)
        consumer.extend(messages[0], 0)
        assert len(consumer.poll(1, timeout=10)) == 1
    stats = store.stats()
    assert stats.messages_read == 1 + read
    assert (stats.messages_delivered, stats.messages_delivered_again) == (len(messages) + 1, 1)
