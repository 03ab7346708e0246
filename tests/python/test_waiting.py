"""Waiting: for messages, in this process and beside a writer in another, and for the lock."""

import _thread
import collections
import contextlib
import functools
import itertools
import logging
import operator
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from harness import LONG_S
from holding import AT_APPEND, GATE, await_sleep, check_an_end, held, running

import forebay
import forebay.archive

pytestmark = pytest.mark.usefixtures("uncollected")

#: Opens the store, sends a body and closes it.
SEND = """
import sys, forebay
with forebay.open(sys.argv[1]) as store:
    store.send(sys.argv[2], sys.argv[3].encode())
"""

#: Waits for what never comes, and says how that ended.
WAIT = """
import sys, forebay
mode = "r" if sys.argv[2].startswith("reader") else "a"
with forebay.open(sys.argv[1], mode=mode, default_queues=1) as store:
    if mode == "a":
        consumer = store.consumer("orders", group="billing")
    try:
        print("waits", flush=True)
        STATEMENT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.fixture
def interrupt():
    """Return a function that sends Ctrl-C while the caller continues."""
    pressers = []

    def press():
        main = threading.main_thread().ident
        pressers.append(threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)))
        pressers[-1].start()

    yield press
    for presser in pressers:
        presser.join()


def send(path, topic, body):
    """Have another process open the store, send one message and close it."""
    subprocess.run([sys.executable, "-c", SEND, path, topic, body], check=True)


def test_a_tail_ends_when_no_message_came_for_its_timeout(store):
    store.send("orders", b"a")
    for timeout in (0, 0.02, timedelta(milliseconds=5)):
        with store.tail("orders", start="earliest", timeout=timeout) as tail:
            assert [message.body for message in tail] == [b"a"]
    tail = store.tail("orders", timeout=0)
    assert list(tail) == []
    store.send("orders", b"b")
    assert [message.body for message in tail] == [b"b"]
    for wrong in (-1, "1", True):
        with pytest.raises((TypeError, forebay.InvalidOptionError)):
            store.tail("orders", timeout=wrong)


def test_a_closed_tail_ends_also_in_threads_that_wait(store):
    store.send("orders", b"a")
    with store.tail("orders") as tail:
        found = []
        waiters = [threading.Thread(target=lambda: found.extend(tail)) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
    for waiter in waiters:
        waiter.join()
    assert found == []
    tail.close()
    store.send("orders", b"b")
    assert next(tail, None) is None
    assert "closed" in repr(tail)


def test_a_store_that_closes_ends_its_tails(store):
    store.send("orders", b"a")
    ahead, waiting = store.tail("orders", start="earliest"), store.tail("orders")
    waiter = threading.Thread(target=lambda: list(waiting))
    waiter.start()
    store.close()
    waiter.join()
    assert list(ahead) == []


def test_a_reader_follows_writers_that_come_later(directory):
    with forebay.open(directory, mode="r") as reader:
        tail = reader.tail("orders", timeout=LONG_S)
        before = reader.read("orders", 0, 0).max_offset
        for body in ("first", "second"):
            send(directory, "orders", body)
            assert next(tail).body == body.encode()
        send(directory, "bills", "another topic")
        assert {"orders", "bills"} <= reader.topics.keys()
        assert [m.body for m in reader.tail("bills", "earliest", False)] == [b"another topic"]
        queues = reader.topics["orders"].queues
        assert sum(queue.max_offset for queue in queues) == before + 2
        assert reader.damage == []


def test_a_reader_sees_a_topic_with_all_its_queues_or_not_at_all(directory):
    """Not only with those that have a message, or whose folder was made already."""
    with forebay.open(directory) as store, forebay.open(directory, mode="r") as reader:
        tail = reader.tail("orders", timeout=LONG_S)
        store.create_topic("bills", queues=5)
        store.send("bills", b"x", queue=2)
        store.send("orders", b"later")
        assert next(tail).body == b"later"
        topic = reader.topics["bills"]
        assert (topic.write_queues, topic.read_queues) == (5, 5)
        assert [queue.id for queue in topic.queues] == list(range(5))
        assert [queue.max_offset for queue in topic.queues] == [0, 0, 1, 0, 0]


def test_opening_waits_for_the_lock_as_long_as_it_is_told(directory):
    first = forebay.open(directory)
    for refused in ({}, {"lock_timeout": 0}, {"lock_timeout": 0.12}):
        with pytest.raises(forebay.StoreLockedError, match="lock_timeout"):
            forebay.open(directory, **refused)
    closer = threading.Thread(target=first.close)
    closer.start()
    with forebay.open(directory, lock_timeout=timedelta(minutes=5)) as second:
        assert second.recovery.clean
    closer.join()
    with pytest.raises(forebay.InvalidOptionError):
        forebay.open(directory, lock_timeout=-1)


def test_ctrl_c_ends_the_waiting_for_the_lock(directory, interrupt):
    with forebay.open(directory), pytest.raises(KeyboardInterrupt):  # noqa: PT012 - either raises
        interrupt()
        forebay.open(directory, lock_timeout=timedelta(days=1))


def test_ctrl_c_ends_a_tail_beside_a_writer_that_is_gone(directory, interrupt):
    with forebay.open(directory, mode="r") as reader:
        tail = reader.tail("orders")
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - either raises
            interrupt()
            next(tail)


def test_ctrl_c_ends_a_long_read(store, interrupt):
    bodies = [b"x"] * 100_000
    store.producer("orders", queue=0).send_batch(bodies)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - either raises
        interrupt()
        while True:
            store.read("orders", 0, 0, max_messages=len(bodies))


def pressed_before(call):
    """Call with Ctrl-C pressed before, and return whether the call ran to its end."""
    done = []
    # No Python code runs between these calls, so the first one's signal is pending in the second.
    with pytest.raises(KeyboardInterrupt):
        done.extend(map(operator.call, [_thread.interrupt_main, call]))
    return len(done) > 1


@pytest.mark.parametrize("method", ["send_batch", "send_batch_nowait"])
@pytest.mark.parametrize("atomic", [False, True])
def test_ctrl_c_ends_a_long_batch_and_whole_chunks_stay(store, method, atomic):
    orders = store.producer("orders", queue=0)
    bodies = [b""] * 1_000_000
    call = functools.partial(getattr(orders, method), bodies, atomic=atomic)
    assert not pressed_before(call)
    sent = store.topics["orders"].queues[0].max_offset
    assert sent < len(bodies)
    assert sent == 0 or not atomic
    assert orders.send(b"next").offset == sent


@pytest.mark.parametrize("method", ["send_batch", "send_batch_nowait"])
def test_ctrl_c_ends_the_conversion_of_a_batch(store, method):
    """It comes before the error about the last body, so not all were converted."""
    orders = store.producer("orders", queue=0)
    bodies = [b""] * 10_000
    bodies.append(3)
    with pytest.raises(TypeError):
        getattr(orders, method)(bodies)
    assert not pressed_before(functools.partial(getattr(orders, method), bodies))


def test_ctrl_c_ends_a_look_at_groups_that_are_far_behind(store):
    """Their lag in bytes takes a read of an entry of the queue for each message."""
    if store.engine == "partitionlog":
        pytest.skip("it takes the sizes of segments")
    store.producer("orders", queue=0).send_batch([b""] * 100_000)
    for group in range(40):
        store.reset_offsets(f"g{group}", "orders", "earliest")
    assert not pressed_before(functools.partial(operator.attrgetter("groups"), store))
    (first, *_), *_ = store.groups.values()
    assert (first.lag, first.lag_bytes > 100_000) == (100_000, True)


def test_ctrl_c_ends_send_arrow(store):
    orders = store.producer("orders", queue=0)
    batch = pa.record_batch({"body": [b"x"] * 1000})
    endless = pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch))
    assert not pressed_before(functools.partial(orders.send_arrow, endless))
    assert store.producer("orders", queue=0).send(b"next").offset >= 0


def test_ctrl_c_ends_a_query_that_reads_the_topic(tmp_path):
    with forebay.open(tmp_path / "log", engine="partitionlog") as store:
        store.producer("orders", queue=0).send_batch([b"x"] * 400_000)
        assert not pressed_before(functools.partial(store.query, "orders", "absent"))


def test_ctrl_c_ends_a_poll_of_many_messages_which_are_given_back(store):
    for _ in range(90):
        store.producer("orders", queue=0).send_batch([b"x"] * 100)
    with store.consumer("orders", group="billing", max_unsettled=10**6) as consumer:
        assert not pressed_before(functools.partial(consumer.poll, 9_000))
        again = consumer.poll(200, timeout=LONG_S)
        assert [message.offset for message in again] == list(range(200))


def test_a_poll_passes_over_a_part_of_the_messages_that_it_does_not_want(store):
    """It answers Ctrl-C between two parts."""
    store.producer("orders", queue=0).send_batch([b""] * 50_000)
    options = {"tags": "paid", "max_unsettled": 10**9}
    with store.consumer("orders", group="billing", **options) as consumer:
        assert consumer.poll(timeout=0) == []
        assert 0 < sum(consumer.lag().values()) < 50_000
        store.producer("orders", queue=0).send(b"x", tags="paid")
        assert [message.body for message in consumer.poll(timeout=LONG_S)] == [b"x"]


def interrupted(reader):
    """Return the error of a stream's reader; the KeyboardInterrupt that follows is expected."""
    # No Python code runs between these calls, so the first one's signal is pending in the second.
    calls = map(operator.call, [_thread.interrupt_main, reader.read_next_batch])
    ended = None
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it is raised once Python code runs
        try:
            collections.deque(calls)
        except OSError as error:
            ended = error
            time.sleep(0)
    return str(ended)


def test_ctrl_c_ends_a_stream_that_foreign_code_reads(store):
    store.send("orders", b"x")
    reader = pa.RecordBatchReader.from_stream(store.scan("orders"))
    assert "nterrupted" in interrupted(reader)
    assert pa.table(store.scan("orders")).num_rows == 1


def test_ctrl_c_ends_a_stream_over_an_archive(directory, tmp_path):
    with forebay.open(directory) as store:
        store.roll()
        store.archive(tmp_path / "archive")
    with forebay.archive.open(tmp_path / "archive") as archive:
        reader = pa.RecordBatchReader.from_stream(archive.scan("orders"))
        assert "nterrupted" in interrupted(reader)
        assert pa.table(archive.scan("orders")).num_rows == 3


def test_a_long_read_gives_what_many_short_ones_give(store):
    tags = ["even", "odd"] * 10_000
    producer = store.producer("orders", queue=0)
    for number, tag in enumerate(tags):
        producer.send(b"%d" % number, tags=tag)
    whole = store.read("orders", 0, 0, max_messages=30_000)
    assert [message.offset for message in whole] == list(range(20_000))
    assert whole.next_offset == 20_000
    some = store.read("orders", 0, 0, max_messages=15_000, tags="odd")
    assert [message.offset for message in some] == list(range(1, 15_000, 2))
    assert some.next_offset == 15_000
    few = store.read("orders", 0, 4_090, max_messages=10)
    assert [message.offset for message in few] == list(range(4_090, 4_100))
    assert few.next_offset == 4_100
    size = sum(message.size for message in whole.messages[4_000:4_200])
    cut = store.read("orders", 0, 4_000, max_messages=9_000, max_bytes=size)
    assert [message.offset for message in cut] == list(range(4_000, 4_200))
    assert cut.next_offset == 4_200


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("reader", "next(store.tail('orders'))"),
        ("reader of a partition log", "next(store.tail('orders'))"),
        ("writer", "next(store.tail('orders'))"),
        ("writer", "consumer.poll()"),
        ("writer", "next(iter(consumer))"),
        ("writer", "consumer.run(print)"),
        ("writer", "forebay.open(sys.argv[1], lock_timeout=600)"),
    ],
)
def test_ctrl_c_ends_a_wait(tmp_path, role, statement):
    path = tmp_path / "store"
    engine = "partitionlog" if "partition" in role else "commitlog"
    with forebay.open(path, engine=engine, default_queues=1) as store:
        store.create_topic("orders")
    with running(WAIT.replace("STATEMENT", statement), path, role) as waiter:
        assert waiter.stdout.readline() == "waits\n"
        os.kill(waiter.pid, signal.SIGINT)
        rest, _ = waiter.communicate(timeout=LONG_S)
    assert (rest, waiter.returncode) == ("interrupted\n", 0)


#: Shares the store, and once it is told to go on, waits for the process that flushes.
FOLLOW = """
import sys, forebay
with forebay.open(sys.argv[1], mode="share", flush_timeout=3600) as store:
    consumer = store.consumer("orders", group="billing")
    input()
    try:
        store.send("orders", b"x")
        print("waits", flush=True)
        STATEMENT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
"""


@pytest.mark.parametrize(
    "statement",
    [
        "store.flush()",
        "store.roll()",
        "store.reset_offsets('billing', 'orders', 'earliest')",
        "consumer.commit()",
    ],
)
def test_ctrl_c_ends_a_wait_for_a_process_that_is_stopped(tmp_path, statement):
    path = tmp_path / "store"
    lead = "import sys, forebay\nstore = forebay.open(sys.argv[1], mode='share')\n"
    with running(lead + "print('leads', flush=True)\ninput()", path) as leader:
        assert leader.stdout.readline() == "leads\n"
        with running(FOLLOW.replace("STATEMENT", statement), path) as follower:
            check_an_interrupt(leader, follower)
            follower.communicate("\n", timeout=LONG_S)
        leader.communicate("\n", timeout=LONG_S)
    assert (leader.returncode, follower.returncode) == (0, 0)


#: Shares the store, and once it is told to go on, closes it while a message is not durable.
LEAVE = """
import sys, forebay
store = forebay.open(sys.argv[1], mode="share", engine=sys.argv[2], flush="sync")
input()
ticket = store.producer("orders").send_nowait(b"x")
print("waits", flush=True)
try:
    store.close()
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
try:
    ticket.result(3600)
except forebay.FlushTimeoutError as error:
    print(error.timeout_ms, flush=True)
"""


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_ctrl_c_ends_the_close_of_a_store_whose_leader_is_stopped(tmp_path, engine):
    """So it ends the wait of those whose messages the leader was to make durable."""
    path = tmp_path / "store"
    lead = "import sys, forebay\n"
    lead += "store = forebay.open(sys.argv[1], mode='share', engine=sys.argv[2], flush='sync')\n"
    lead += "print('leads', flush=True)\ninput()"
    with running(lead, path, engine) as leader:
        assert leader.stdout.readline() == "leads\n"
        with running(LEAVE, path, engine) as follower:
            check_an_interrupt(leader, follower)
            rest, _ = follower.communicate("\n", timeout=LONG_S)
        leader.communicate("\n", timeout=LONG_S)
    assert (leader.returncode, follower.returncode) == (0, 0)
    # They are not left to the limit for a leader that hangs.
    assert int(rest) < 30_000


def check_an_interrupt(leader, follower):
    """Check that a process that waits for a leader that is stopped is interrupted."""
    os.kill(leader.pid, signal.SIGSTOP)
    os.waitpid(leader.pid, os.WUNTRACED)
    follower.stdin.write("\n")
    follower.stdin.flush()
    assert follower.stdout.readline() == "waits\n"
    await_sleep(follower)
    os.kill(follower.pid, signal.SIGINT)
    # Else it waits for its flush_timeout, which is much longer.
    assert select.select([follower.stdout], [], [], LONG_S)[0]
    assert follower.stdout.readline() == "interrupted\n"
    os.kill(leader.pid, signal.SIGCONT)


#: Shares the store; once it is told to go on, calls what another process holds up.
HELD_UP = """
import sys, forebay
share = lambda: forebay.open(sys.argv[1], mode="share", busy_timeout=3600)
with share() as store:
    orders = store.producer("orders")
    print("ready", flush=True)
    input()
    try:
        print("waits", flush=True)
        STATEMENT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
    print(store.send("bills", b"x").offset, flush=True)
"""

#: The file whose bytes processes lock, and that with the word of the append lock, by engine.
FILES = {"commitlog": ("lock", "forebay.state"), "partitionlog": (".lock", "forebay.shared")}


@contextlib.contextmanager
def held_up(
    path: Path, engine: str = "commitlog", process: subprocess.Popen[str] | None = None
) -> Iterator[None]:
    """Stand for a living process that holds the append lock and the gate; see `held`."""
    lock, page = FILES[engine]
    with held(process, path, lock, {page: AT_APPEND}, GATE):
        yield


@pytest.mark.parametrize(
    "statement",
    [
        "store.send('orders', b'x')",
        "orders.send(b'x', flush=True)",
        "orders.send_nowait(b'x')",
        "orders.send_batch([b'x'])",
        "orders.send_batch([b'x'], atomic=True)",
        "store.create_topic('new')",
        "store.producer('new')",
        "share()",
    ],
)
def test_ctrl_c_ends_a_call_that_another_process_holds_up(tmp_path: Path, statement: str):
    path = tmp_path / "store"
    with running(HELD_UP.replace("STATEMENT", statement), path) as sender:
        check_an_end(sender, held_up(path, process=sender))


#: Shares a store whose messages are durable, and refuses one.
REFUSES = """
import sys, forebay
options = dict(mode="share", engine=sys.argv[2], flush="sync", flush_timeout=3600)
with forebay.open(sys.argv[1], **options) as store:
    store.send("orders", b"x")
    consumer = store.consumer("orders", group="billing")
    (message,) = consumer.poll(timeout=60)
    print("ready", flush=True)
    input()
    try:
        print("waits", flush=True)
        consumer.nack(message)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
"""


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_ctrl_c_ends_the_refusal_of_a_message_whose_leader_is_stopped(tmp_path, engine):
    path = tmp_path / "store"
    lead = "import sys, forebay\n"
    lead += "store = forebay.open(sys.argv[1], mode='share', engine=sys.argv[2], flush='sync')\n"
    lead += "print('leads', flush=True)\ninput()"
    with running(lead, path, engine) as leader:
        assert leader.stdout.readline() == "leads\n"
        with running(REFUSES, path, engine) as follower:
            assert follower.stdout.readline() == "ready\n"
            check_an_interrupt(leader, follower)
            follower.communicate("\n", timeout=LONG_S)
        leader.communicate("\n", timeout=LONG_S)
    assert (leader.returncode, follower.returncode) == (0, 0)


#: Calls what another process holds up, and meanwhile, in the handler of a signal, something else.
HANDLES = """
import signal, sys, forebay

def call(*_):
    print("handles", flush=True)
    HANDLED
    print("handled", flush=True)

signal.signal(signal.SIGUSR1, call)
options = dict(default_queues=4, busy_timeout=3600)
with forebay.open(sys.argv[1], mode="share", engine=sys.argv[2], **options) as store:
    bills, orders = store.producer("bills"), store.producer("orders")
    rows, keys = [b"x"] * 9, list("abcdefghi")
    print("ready", flush=True)
    input()
    print("waits", flush=True)
    WAITED
    print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("engine", "waited", "handled"),
    [
        ("commitlog", "orders.send(b'x')", "bills.send(b'x')"),
        ("partitionlog", "store.create_topic('new')", "store.create_topic('newer')"),
        (
            "partitionlog",
            "orders.send_batch(rows, keys=keys, atomic=True)",
            "bills.send_batch(rows, keys=keys, atomic=True)",
        ),
    ],
)
def test_the_handler_of_a_signal_may_use_the_store_while_it_waits(
    tmp_path: Path, engine: str, waited: str, handled: str
):
    path = tmp_path / "store"
    code = HANDLES.replace("WAITED", waited).replace("HANDLED", handled)
    with running(code, path, engine) as process:
        assert process.stdout.readline() == "ready\n"
        with held_up(path, engine, process):
            print(file=process.stdin, flush=True)
            assert process.stdout.readline() == "waits\n"
            os.kill(process.pid, signal.SIGUSR1)
            assert process.stdout.readline() == "handles\n"
        assert process.communicate(timeout=LONG_S)[0] == "handled\ndone\n"


@contextlib.contextmanager
def on_warning(text: str, call) -> Iterator[None]:
    """Call a function when the package logs a warning that contains a text."""
    handler = logging.Handler()
    handler.emit = lambda record: call() if text in record.getMessage() else None
    logging.getLogger("forebay").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("forebay").removeHandler(handler)


def fail(message):
    raise ValueError("no")


def test_a_run_stores_an_outcome_once_the_log_is_no_longer_busy(tmp_path, caplog):
    path = tmp_path / "store"
    with forebay.open(path, mode="share", busy_timeout=0.02) as store:
        store.send("orders", b"x")
        # Delayed messages wait in this topic.
        store.create_topic("SCHEDULE_TOPIC_XXXX", 18)
        consumer = store.consumer("orders", group="billing")
        running = threading.Thread(target=consumer.run, args=(fail,))
        is_late = threading.Event()
        with on_warning("not settled yet", is_late.set):
            with held_up(path):
                running.start()
                assert is_late.wait(LONG_S)
            assert next(store.tail("SCHEDULE_TOPIC_XXXX", "earliest", timeout=LONG_S)).body == b"x"
            consumer.close()
            running.join()
    assert sum("not settled yet" in record.getMessage() for record in caplog.records) == 1


def test_a_run_that_is_stopped_gives_back_what_it_cannot_settle(tmp_path):
    path = tmp_path / "store"
    terminate = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
    with forebay.open(path, mode="share", busy_timeout=0.02, default_queues=1) as store:
        store.producer("orders").send_batch([b"1", b"2"])
        consumer = store.consumer("orders", group="billing")
        with on_warning("not settled yet", terminate), held_up(path):
            consumer.run(fail, batch=2)
        assert [message.body for message in consumer.poll(timeout=LONG_S)] == [b"1", b"2"]


def test_a_reader_that_is_killed_while_it_waits_leaves_nothing_behind(directory):
    code = WAIT.replace("STATEMENT", "next(store.tail('orders'))")
    before = sorted(directory.rglob("*"))
    with running(code, directory, "reader") as killed:
        assert killed.stdout.readline() == "waits\n"
    assert sorted(directory.rglob("*")) == before
    with forebay.open(directory, mode="r") as reader, reader.tail("orders", timeout=LONG_S) as tail:
        for body in ("x", "y"):
            send(directory, "orders", body)
            assert next(tail).body == body.encode()


def test_a_closed_consumer_ends_the_waits_of_other_threads(store):
    consumer = store.consumer("orders", group="billing")
    ended = []

    def work(wait):
        with pytest.raises(forebay.StoreClosedError):
            wait()
        ended.append(wait)

    waits = [consumer.poll, lambda: next(iter(consumer)), lambda: consumer.poll(timeout=600)]
    workers = [threading.Thread(target=work, args=(wait,)) for wait in waits]
    for worker in workers:
        worker.start()
    consumer.close()
    for worker in workers:
        worker.join()
    assert len(ended) == len(waits)


def test_a_thread_gets_what_is_sent_while_it_waits(store):
    consumer, tail = store.consumer("orders", group="billing"), store.tail("orders")
    got = []
    waits = [lambda: consumer.poll(1)[0], lambda: next(iter(consumer)), lambda: next(tail)]
    workers = [threading.Thread(target=lambda wait=wait: got.append(wait())) for wait in waits]
    for worker in workers:
        worker.start()
    # An iterator may take both at once; what it has not handed out is delivered again.
    store.producer("orders").send_batch([b"x", b"x"])
    for worker in workers:
        worker.join()
    assert [message.body for message in got] == [b"x"] * 3


def test_the_first_run_of_a_consumer_imports_no_logging():
    """An import that evaluates a text and is interrupted has the process end by SIGINT."""
    code = "import sys, forebay.consumer; assert not {'logging', 'tokenize'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
