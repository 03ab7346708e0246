"""Stores in Kafka's form that are written: sends, options, places, and what is refused."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from harness import LONG_S

import forebay
import forebay.aio


def open_log(path: Path, **options: object) -> forebay.Store:
    return forebay.open(path, engine="partitionlog", **options)  # type: ignore[arg-type]


def bodies(store: forebay.Store, topic: str) -> list[bytes]:
    return [it.body for it in store.tail(topic, start="earliest", follow=False)]


@pytest.mark.parametrize("mode", ["a", "share"])
def test_a_check_beside_senders_takes_no_new_message_for_damage(tmp_path, mode):
    """The index of the last segment gets entries of messages that came after the check began."""
    options = {"default_queues": 1, "index_interval_bytes": 0, "engine": "partitionlog"}
    with forebay.open(tmp_path / "log", mode, **options) as store:
        orders = store.producer("orders")
        orders.send(b"before")

        def progress(_done, _total):
            orders.send(b"meanwhile")
            store.roll()

        report = store.verify(progress)
        assert report.ok, report.damage
        assert store.damage == []
        assert store.verify().records == 2


@pytest.mark.parametrize("mode", ["a", "share"])
def test_so_many_messages_are_flushed_although_nobody_waits(tmp_path, mode):
    options = {"default_queues": 1, "flush_interval": 3600, "queue_flush_interval": 3600}
    with open_log(tmp_path / "log", mode=mode, flush_messages=3, **options) as store:
        sent = [store.send("orders", b"x") for _ in range(3)]
        deadline = time.monotonic() + LONG_S
        while store.durable_position <= sent[-1].position:
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_what_is_sent_is_read_with_all_that_it_had(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        assert (store.engine, store.recovery.clean) == ("partitionlog", True)
        sent = store.send(
            "orders.eu",
            b"body",
            keys=["42", "a"],
            tags="paid",
            properties={"region": "eu"},
            queue=3,
        )
        assert (sent.topic, sent.queue, sent.offset) == ("orders.eu", 3, 0)
        assert sent.message_id == "orders.eu-3@0"
        assert pickle.loads(pickle.dumps(sent)).message_id == sent.message_id
        message = store.message(sent.message_id)
        assert (message.body, message.keys, message.tags) == (b"body", ("42", "a"), "paid")
        assert message.properties == {"region": "eu"}
        assert message.headers == (("region", b"eu"),)
        assert message.store_timestamp == sent.timestamp
        assert store.get("orders.eu", queue=3, offset=0).body == b"body"
    with forebay.open(tmp_path / "log") as store:
        assert (store.engine, store.recovery.clean) == ("partitionlog", True)
        assert bodies(store, "orders.eu") == [b"body"]
        assert store.verify().ok


def test_batches_and_arrow_data_become_one_batch_of_each_partition(tmp_path: Path):
    with open_log(tmp_path / "log", default_queues=4) as store:
        producer = store.producer("orders")
        sent = producer.send_batch([b"%d" % n for n in range(100)], queue=1)
        assert sent.ranges == {1: range(100)}
        table = pa.table({"body": [b"x", b"y", b"z"], "key": ["a", "b", "a"]})
        more = producer.send_arrow(table)
        assert more.count == 3
        assert sum(len(it) for it in more.ranges.values()) == 3
        assert pa.table(store.scan("orders")).num_rows == 103
        # All messages of a batch name the byte at which it begins.
        assert {it.position for it in store.read("orders", 1, 0, max_messages=100).messages} == {0}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_small_segments(tmp_path: Path, codec: str):
    options = {"compression": codec, "segment_bytes": 8192, "default_queues": 1}
    with open_log(tmp_path / "log", **options) as store:
        sent = [os.urandom(100) * 3 for _ in range(120)]
        for number in range(0, 120, 3):
            store.producer("t").send_batch(sent[number : number + 3])
        found = bodies(store, "t")
        assert found == sent
    segments = sorted((tmp_path / "log" / "t-0").glob("*.log"))
    assert len(segments) > 1
    with forebay.open(tmp_path / "log", mode="r") as store:
        assert bodies(store, "t") == found
        assert store.verify().ok


def test_times_are_those_of_the_message_or_of_the_append(tmp_path: Path):
    then = datetime.fromtimestamp(1_600_000_000, UTC)
    with open_log(tmp_path / "made") as store:
        sent = store.send("t", b"", timestamp=then)
        assert sent.timestamp == 1_600_000_000_000
        assert store.get("t", sent.queue, 0).store_time == then
    with open_log(tmp_path / "appended", message_timestamp_type="LogAppendTime") as store:
        sent = store.send("t", b"", timestamp=then)
        assert store.get("t", sent.queue, 0).store_timestamp == sent.timestamp > 1_700_000_000_000


def test_sync_stores_and_tickets_wait_for_the_disk(tmp_path: Path):
    with open_log(tmp_path / "log", flush="sync") as store:
        assert store.send("t", b"1", queue=0).durable
        assert not store.send("t", b"2", queue=0, flush=False).durable
        ticket = store.producer("t", queue=0).send_nowait(b"3")
        assert ticket.result(timeout=30).offset == 2
        assert bodies(store, "t") == [b"1", b"2", b"3"]
        assert store.durable_position == store.flush()


def test_messages_that_linger_share_a_batch(tmp_path: Path):
    with open_log(tmp_path / "log", linger=3600, default_queues=1) as store:
        producer = store.producer("orders")
        tickets = [producer.send_nowait(b"%d" % number) for number in range(3)]
        assert "not in the log" in repr(tickets[0])
        assert not tickets[0].done()
        assert bodies(store, "orders") == []
        with pytest.raises(forebay.FlushTimeoutError, match="waits for others") as caught:
            tickets[0].result(timeout=0)
        assert caught.value.result is None
        # Another message of the queue comes after them.
        assert producer.send(b"3").offset == 3
        assert [ticket.result().offset for ticket in tickets] == [0, 1, 2]
        assert all(ticket.done() for ticket in tickets)
        assert bodies(store, "orders") == [b"0", b"1", b"2", b"3"]
        first, *_, last = store.read("orders", 0, 0).messages
        assert first.position == tickets[2].result().position < last.position
        with pytest.raises(forebay.MessageTooLargeError):
            producer.send_nowait(bytes(5 << 20))
        # A send that waits for the disk is in the log at once, too.
        assert producer.send(b"4", flush=True).durable
        left = producer.send_nowait(b"5")
    assert left.result().durable
    with forebay.open(tmp_path / "log") as store:
        assert bodies(store, "orders")[-1] == b"5"


def test_a_loop_waits_for_no_other_messages(tmp_path: Path):
    async def run() -> None:
        async with forebay.aio.open(
            tmp_path / "log", engine="partitionlog", linger=3600, flush="sync"
        ) as store:
            assert (await store.send("orders", b"1")).durable

    asyncio.run(run())


def test_one_process_writes_and_others_read_meanwhile(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        for number in range(10):
            store.send("t", b"%d" % number, queue=0)
        with pytest.raises(forebay.StoreLockedError, match=f"process {os.getpid()}:") as refused:
            forebay.open(tmp_path / "log")
        assert refused.value.pid == os.getpid()
        with forebay.open(tmp_path / "log", mode="r") as reader:
            assert bodies(reader, "t") == [b"%d" % number for number in range(10)]
            store.send("t", b"10", queue=0)
            assert len(bodies(reader, "t")) == 11
            assert reader.verify().ok
            assert not reader.damage


#: Sends to a segment that somebody cuts off under its map.
CUT_OFF = """
import os, sys, pathlib, forebay
path = pathlib.Path(sys.argv[1])
store = forebay.open(path, engine="partitionlog", default_queues=1, segment_bytes=1 << 20)
store.send("orders", b"x")
(log,) = (path / "orders-0").glob("*.log")
os.truncate(log, 0)
for call in (lambda: store.send("orders", b"y" * 5000), lambda: store.send("orders", b"z")):
    try:
        call()
    except forebay.ForebayError as error:
        print(type(error).__name__, log.name in str(error))
"""


def test_a_segment_that_is_cut_off_is_an_error_and_no_signal(tmp_path: Path):
    arguments = [sys.executable, "-c", CUT_OFF, str(tmp_path / "s")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout == "DiskError True\nStoreFailedError True\n", (done.returncode, done.stderr)


LOCK_AS_JAVA_DOES = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds a lock")
@pytest.mark.parametrize(("engine", "name"), [("partitionlog", ".lock"), ("commitlog", "lock")])
def test_a_broker_that_holds_the_lock_is_named(tmp_path: Path, engine: str, name: str):
    forebay.open(tmp_path, engine=engine).close()
    command = [sys.executable, "-c", LOCK_AS_JAVA_DOES, str(tmp_path / name)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        with pytest.raises(forebay.StoreLockedError, match=f"process {broker.pid}:") as refused:
            forebay.open(tmp_path)
        assert refused.value.pid == broker.pid
        assert "share" not in str(refused.value)
        if engine == "partitionlog":
            with pytest.raises(forebay.StoreLockedError, match=f"process {broker.pid}:"):
                forebay.open(tmp_path, mode="share")
        broker.communicate()
    forebay.open(tmp_path).close()


def test_the_process_that_wrote_before_is_not_named(tmp_path: Path):
    open_log(tmp_path / "log").close()
    lock = tmp_path / "log" / ".lock"
    assert lock.read_bytes().startswith(b"%d\n" % os.getpid())
    for left in (b"", b"lock", b"12", b"-1\n", b"x\n", b"0\n", b"99999999999\n"):
        lock.write_bytes(left)
        with open_log(tmp_path / "log"):
            assert lock.read_bytes().startswith(b"%d\n" % os.getpid())
            lock.write_bytes(left)
            unknown = r'pid unknown.* or open it with mode="share"'
            with pytest.raises(forebay.StoreLockedError, match=unknown) as refused:
                forebay.open(tmp_path / "log")
            assert refused.value.pid is None


def test_an_atomic_batch_goes_to_several_queues(tmp_path: Path):
    keys = [str(number) for number in range(20)]
    with open_log(tmp_path / "log") as store:
        sent = store.producer("t").send_batch([b""] * 20, keys=keys, atomic=True)
        assert sent.count == 20
        assert len(sent.ranges) > 1
        assert (tmp_path / "log/forebay.intent").exists()
        assert store.producer("t").send_batch([b"1", b"2"], atomic=True).count == 2
    assert not (tmp_path / "log/forebay.intent").exists()
    with open_log(tmp_path / "log") as store:
        assert len(bodies(store, "t")) == 22


def test_what_a_partition_log_does_not_have_is_refused(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        for name in ("%RETRY%g", "a b", "x" * 250, "..", "rmq_sys_forebay_delay"):
            with pytest.raises(forebay.InvalidTopicError):
                store.send(name, b"")
        for group in ("%g", "a b", "", "g" * 121):
            with pytest.raises(forebay.InvalidOptionError, match=r"group .* \., - and _"):
                store.consumer("t", group=group)
    with pytest.raises(forebay.InvalidOptionError, match="segment_bytes"):
        forebay.open(tmp_path / "commits", segment_bytes=8192)
    assert not (tmp_path / "commits").exists()
    with pytest.raises(forebay.InvalidOptionError, match=r"linger is 0\.5: only a partition log"):
        forebay.open(tmp_path / "commits", linger=0.5)
    for option in (
        {"compression": "brotli"},
        {"segment_bytes": 1},
        {"linger": 3601},
        {"batch_bytes": 100},
        {"batch_bytes": 1 << 30, "linger": 1},
        {"warm_up": True},
        {"lock_memory": True},
        {"read_ahead": False},
        {"warm_up_flush_pages": 4096},
        {"index": True},
        {"index": False},
        {"disk_reserve": 1},
        {"disk_reserve": 256 << 20, "retention_bytes": 1 << 20},
    ):
        with pytest.raises(forebay.InvalidOptionError, match=next(iter(option))):
            open_log(tmp_path / "other", **option)
    # Options may state what a partition log does anyway.
    open_log(tmp_path / "other", disk_reserve=0, retention_bytes=1 << 20, index=None).close()
    with pytest.raises(forebay.UnsupportedError, match="share"):
        open_log(tmp_path / "other", mode="share", cleanup_policy="compact")
    with pytest.raises(forebay.StoreExistsError):
        open_log(tmp_path / "log", mode="x")


def test_producers_keep_their_queues(tmp_path: Path):
    queues = {}
    for _ in range(2):
        with open_log(tmp_path / "log", default_queues=2) as store:
            producers = {name: store.producer("t", queue="own", name=name) for name in "ab"}
            for name, producer in producers.items():
                queue = producer.send(b"").queue
                assert queues.setdefault(name, queue) == queue
            with pytest.raises(forebay.InvalidOptionError):
                store.producer("t", queue="own", name="c")
    assert len(set(queues.values())) == 2


def test_the_lag_in_bytes_is_that_of_the_batches(tmp_path: Path):
    options = {"segment_bytes": 65536, "default_queues": 1, "index_interval_bytes": 4096}
    with open_log(tmp_path / "log", **options) as store:
        for _ in range(150):
            store.send("t", bytes(1000))
    # Closing has written the index.
    with (
        open_log(tmp_path / "log", **options) as store,
        store.consumer("t", group="g") as consumer,
    ):
        for settled in (0, 100, 50):
            consumer.ack(consumer.poll(settled, timeout=10) if settled else [])
            (queue,) = [it for it in store.groups["g"] if it.topic == "t"]
            stored = queue.lag * 1_070
            assert stored - 1_000 <= queue.lag_bytes <= stored + 6_000, queue


def test_a_message_that_is_too_large_for_a_segment_is_refused(tmp_path: Path):
    with open_log(tmp_path / "log", segment_bytes=65536, default_queues=1) as store:
        with pytest.raises(forebay.MessageTooLargeError):
            store.send("t", bytes(70_000))
        # What is longer than a segment is split.
        store.producer("t").send_batch([bytes(30_000)] * 7)
        assert [len(it) for it in bodies(store, "t")] == [30_000] * 7


def segments(path: Path, queue: int) -> list[tuple[int, int]]:
    """Return base and length of each segment of a queue of the topic ``t``."""
    logs = sorted((path / f"t-{queue}").glob("*.log"))
    return [(int(log.stem), log.stat().st_size) for log in logs]


def test_a_roll_completes_the_segments_of_all_queues(tmp_path: Path):
    path = tmp_path / "log"
    with open_log(path, default_queues=3, segment_bytes=65536) as store:
        assert store.roll() is None
        for number in range(10):
            store.send("t", b"%d" % number, queue=number % 2)
        assert store.roll() == store.durable_position
        assert store.roll() is None
        for queue in (0, 1):
            (first, second) = segments(path, queue)
            assert first[0] == 0
            assert first[1] < 1000
            assert second == (5, 65536)
            assert (path / f"t-{queue}" / f"{0:020}.timeindex").stat().st_size > 0
        assert segments(path, 2) == []
        assert len(bodies(store, "t")) == 10
        with forebay.open(path, mode="r") as reader:
            assert len(bodies(reader, "t")) == 10
        assert store.send("t", b"10", queue=0).offset == 5
        # Retention of what is complete leaves the offsets.
        store.delete_before("t", {1: 5})
        assert segments(path, 1) == [(5, 65536)]
    with open_log(path) as store:
        assert store.recovery.clean
        assert segments(path, 1) == [(5, 0)]
        assert store.send("t", b"11", queue=1).offset == 5
        assert store.roll() is not None
        assert [base for base, _ in segments(path, 0)] == [0, 5, 6]
        assert store.verify().ok


def test_a_rolled_segment_is_compacted(tmp_path: Path):
    with open_log(tmp_path / "log", default_queues=1, cleanup_policy="compact") as store:
        for number in range(10):
            store.send("t", b"%d" % number, key="k")
        assert store.compact().messages_read == 0
        store.roll()
        assert store.compact().messages_read == 10
        assert bodies(store, "t") == [b"9"]
        assert store.send("t", b"10", key="k").offset == 10


def test_a_segment_ends_by_its_age(tmp_path: Path):
    with open_log(tmp_path / "log", default_queues=1, roll_after=60) as store:
        for minute in (0, 1, 2, 3):
            moment = datetime.fromtimestamp(1_600_000_000 + 61 * minute, UTC)
            store.send("t", b"", timestamp=moment)
        assert [base for base, _ in segments(tmp_path / "log", 0)] == [0, 1, 2, 3]


ROLLED = """
import forebay, os, signal, sys
store = forebay.open(sys.argv[1], engine="partitionlog", default_queues=1)
for number in range(5):
    store.send("t", b"%d" % number)
store.roll()
if sys.argv[2] == "delete":
    store.delete_before("t", "latest")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("what", ["keep", "delete"])
def test_offsets_go_on_where_a_process_died_after_a_roll(tmp_path: Path, what: str):
    command = [sys.executable, "-c", ROLLED, str(tmp_path / "log"), what]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    with open_log(tmp_path / "log") as store:
        assert not store.recovery.clean
        assert store.damage == []
        assert len(bodies(store, "t")) == (5 if what == "keep" else 0)
        assert store.send("t", b"5").offset == 5
        assert store.verify().ok


KILLED = """
import forebay, sys
store = forebay.open(sys.argv[1], engine="partitionlog", segment_bytes=65536, default_queues=3)
producer = store.producer("t")
number = 0
while True:
    sent = producer.send(b"%d" % number, key=str(number % 7), flush=number % 50 == 0)
    print(number, sent.queue, sent.offset, flush=True)
    number += 1
"""


def test_a_killed_writer_loses_nothing_that_was_sent(tmp_path: Path):
    path = tmp_path / "log"
    known: dict[tuple[int, int], bytes] = {}
    for count in (1, 700, 3000):
        command = [sys.executable, "-c", KILLED, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(count):
                number, queue, offset = (int(it) for it in child.stdout.readline().split())
                known[queue, offset] = b"%d" % number
            os.kill(child.pid, signal.SIGKILL)
            for line in child.stdout.read().splitlines():
                parts = line.split()
                if len(parts) == 3:
                    number, queue, offset = (int(it) for it in parts)
                    known[queue, offset] = b"%d" % number
        with forebay.open(path) as store:
            assert not store.recovery.clean
            assert not store.damage
            found = {
                (it.queue, it.offset): it.body
                for it in store.tail("t", start="earliest", follow=False)
            }
            assert known.items() <= found.items()
            assert store.verify().ok
            known = found


#: Sends a body, says so, and goes on until it is killed.
SEND_AND_STAY = """
import sys, forebay
with forebay.open(sys.argv[1], mode=sys.argv[2], engine="partitionlog") as store:
    store.send("orders", sys.argv[3].encode())
    print("sent", flush=True)
    input()
"""


@pytest.mark.parametrize("mode", ["a", "share"])
def test_a_tail_follows_processes_that_write_and_are_killed(tmp_path: Path, mode: str):
    if mode == "share" and sys.platform != "linux":
        pytest.skip("stores are shared on Linux")
    path = tmp_path / "log"
    with open_log(path, default_queues=1) as store:
        store.create_topic("orders")
    with forebay.open(path, mode="r") as reader, reader.tail("orders", timeout=LONG_S) as tail:
        for body in ("one", "two", "three"):
            command = [sys.executable, "-c", SEND_AND_STAY, str(path), mode, body]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe) as child:
                assert next(tail).body == body.encode()
                assert child.stdout is not None
                assert child.stdout.readline() == b"sent\n"
                child.kill()


def test_a_scan_has_the_bytes_of_keys_and_null_for_tombstones(tmp_path):
    with open_log(tmp_path / "s") as store:
        store.send("t", b"body", key=b"\xff\x01", queue=0)
        store.send("t", None, key=b"\xff\x02", queue=0)
        store.send("t", b"", key="text", queue=0)
        rows = pa.table(store.scan("t", columns=["key", "value"])).to_pylist()
        assert rows == [
            {"key": b"\xff\x01", "value": b"body"},
            {"key": b"\xff\x02", "value": None},
            {"key": b"text", "value": b""},
        ]
        for number, key in enumerate([b"\xff\x01", b"\xff\x02", b"text"]):
            assert [message.offset for message in store.query("t", key=key)] == [number]
            found = pa.table(store.scan("t", key=key, columns=["offset"]))
            assert found["offset"].to_pylist() == [number]


@pytest.mark.parametrize("engine", ["commitlog", "memory"])
def test_no_message_has_a_key_that_is_not_text_where_keys_are_text(tmp_path, engine):
    path = ":memory:" if engine == "memory" else tmp_path / "s"
    with forebay.open(path, default_queues=1) as store:
        store.send("t", b"", keys=["first", "second"])
        store.send("t", b"body")
        assert store.query("t", key=b"\xff") == []
        assert pa.table(store.scan("t", key=b"\xff")).num_rows == 0
        rows = pa.table(store.scan("t", columns=["key", "value"])).to_pylist()
        assert rows == [{"key": b"first", "value": b""}, {"key": None, "value": b"body"}]
