"""What a stream reads and when, without a session: a stand-in runs the batches."""

import json
import os
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import store_files
from golden_stores import unpack
from harness import LONG_S
from streaming import LAZY, Stream, Writer

import forebay
from forebay.errors import (
    ForebayError,
    InvalidOptionError,
    LogShrunkError,
    OffsetOutOfRangeError,
    StoreNotFoundError,
    UnsupportedError,
)
from forebay.spark import stream as streams
from forebay.spark.watch import Watch

SMALL = {"commitlog_file_size": 16 << 10, "queue_file_entries": 64, "default_queues": 2}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    """Answer at once, also if there is nothing to read."""
    monkeypatch.setattr(streams, "WAIT", timedelta())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events"


@pytest.fixture
def store(path):
    with forebay.open(path, **SMALL) as store:
        yield store


def send(store, *bodies, topic="orders", queue=0, flush=True):
    """Send messages; return the rows that a stream gives for them."""
    result = store.producer(topic, queue=queue).send_batch([str(body).encode() for body in bodies])
    if flush:
        store.flush()
    offsets = result.ranges[queue]
    sent = zip(offsets, bodies, strict=True)
    return [(topic, queue, offset, str(body).encode()) for offset, body in sent]


def until(holds):
    """Wait for another thread or process to act."""
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def offsets_of(stream, path):
    return json.loads(stream.offset)["stores"][str(path)]["topics"]


# --- where a stream begins ------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_and_reads_new_messages(store, path):
    send(store, 1, 2, 3)
    stream = Stream(path)
    assert stream.trigger() is None
    assert offsets_of(stream, path) == {"orders": {"0": 3}}
    rows = send(store, 4, 5) + send(store, 6, queue=1)
    assert stream.trigger() == rows
    assert stream.trigger() is None
    assert offsets_of(stream, path) == {"orders": {"0": 5, "1": 1}}


def test_an_answer_without_news_waits_for_a_message(path, monkeypatch):
    waits, wait = threading.Event(), Watch.wait

    def seen(*arguments):
        waits.set()
        return wait(*arguments)

    with forebay.open(path, flush="sync", **SMALL) as store, ThreadPoolExecutor(1) as pool:
        send(store, 1)
        stream = Stream(path)
        assert stream.trigger() is None
        monkeypatch.setattr(streams, "WAIT", timedelta(hours=1))
        monkeypatch.setattr(Watch, "wait", seen)
        triggered = pool.submit(stream.trigger)
        assert waits.wait(LONG_S)
        rows = send(store, 2, 3)
        assert triggered.result(LONG_S) == rows
        # There is a message to read: no wait.
        waits.clear()
        rows = send(store, 4)
        assert stream.trigger() == rows
        assert not waits.is_set()


def test_an_available_now_stream_waits_for_no_message(store, path, monkeypatch):
    rows = send(store, 1, 2)
    monkeypatch.setattr(streams, "WAIT", timedelta(hours=1))
    assert Stream(path, startingOffsets="earliest").available_now() == [rows]


def test_a_stream_begins_at_its_starting_offsets(store, path):
    rows = send(store, 1, 2, 3)
    other = send(store, 4, 5, queue=1)
    assert Stream(path, startingOffsets="earliest").trigger() == rows + other
    by_queue = '{"orders":{"0":2,"1":-2}}'
    assert Stream(path, startingOffsets=by_queue).trigger() == rows[2:] + other
    by_queue = '{"orders":{"0":1,"1":-1}}'
    assert Stream(path, startingOffsets=by_queue).trigger() == rows[1:]
    with pytest.raises(InvalidOptionError, match="every partition"):
        Stream(path, startingOffsets='{"orders":{"0":1}}').start()
    with pytest.raises(OffsetOutOfRangeError):
        Stream(path, startingOffsets='{"orders":{"0":9,"1":0}}').start()


def test_a_stream_begins_at_a_time(store, path):
    rows = send(store, 1, 2)
    then = store.get("orders", 0, 1).store_timestamp + 1
    until(lambda: datetime.now(UTC).timestamp() * 1000 > then + 1)
    later = send(store, 3) + send(store, 4, queue=1)
    assert Stream(path, startingTimestamp=str(then)).trigger() == later
    by_queue = json.dumps({"orders": {"0": 0, "1": then}})
    assert Stream(path, startingOffsetsByTimestamp=by_queue).trigger() == rows + later
    far = str(then + 10**9)
    with pytest.raises(InvalidOptionError, match="no message stored at or after"):
        Stream(path, startingTimestamp=far).start()
    stream = Stream(path, startingTimestamp=far, startingOffsetsByTimestampStrategy="latest")
    assert stream.trigger() is None


def test_a_stream_needs_a_store(tmp_path):
    with pytest.raises(StoreNotFoundError):
        Stream(tmp_path / "none").start()


def test_an_archive_is_read_only_in_batches(store, path, tmp_path):
    send(store, 1, 2)
    store.archive(tmp_path / "archive")
    for place in (tmp_path / "archive", "s3://bucket/events", "s3://bucket/ev*"):
        with pytest.raises(InvalidOptionError, match=r"spark\.read reads archives"):
            Stream(place).start()


# --- limits ---------------------------------------------------------------------------------------


def test_batches_respect_a_limit_of_messages(store, path):
    rows = send(store, *range(90)) + send(store, *range(10), queue=1)
    stream = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert offsets_of_batches(stream) == [(26, 4), (27, 3), (28, 2), (9, 1)]
    stream = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert sorted(stream.drain()) == sorted(rows)
    # If Spark asks for all that is available, no limit applies.
    end = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert len(end.run(end.plan(all_available=True))[0]) == 100


def offsets_of_batches(stream):
    """Return the number of messages of each of two queues in each batch."""
    counts = []
    while (batch := stream.trigger()) is not None:
        counts.append(tuple(sum(row[1] == queue for row in batch) for queue in (0, 1)))
    return counts


def test_batches_respect_a_limit_of_bytes(store, path):
    bodies = ["x" * (number % 7 * 100) for number in range(120)]
    rows = send(store, *bodies) + send(store, *bodies, queue=1)
    size = sum(store.get("orders", 0, offset).size for offset in range(120))
    stream = Stream(path, startingOffsets="earliest", maxBytesPerTrigger=str(size // 4))
    found = []
    count = 0
    while (batch := stream.trigger()) is not None:
        count += 1
        found += batch
        taken = sum(store.get(topic, queue, offset).size for topic, queue, offset, _ in batch)
        assert taken <= size // 4
    assert sorted(found) == sorted(rows)
    assert 8 <= count <= 11
    # A message that exceeds the limit comes alone.
    stream = Stream(path, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert len(stream.trigger()) == 1


@pytest.mark.parametrize("size", [1900, 4000])
def test_a_queue_of_large_messages_progresses_beside_one_of_small_ones(store, path, size):
    """Messages that barely fit into the limit, and messages that exceed it."""
    large = send(store, *("x" * size for _ in range(5)))
    stream = Stream(path, startingOffsets="earliest", maxBytesPerTrigger="2100")
    small, found = [], []
    for _ in range(10):
        # As many messages as queues: a turn counted in messages would not advance.
        small += send(store, "y", "y", queue=1)
        found += stream.trigger()
    assert sorted(found)[:5] == large
    assert sorted(found + stream.drain()) == large + small


def test_few_messages_wait_for_more_or_for_the_trigger_delay(store, path, monkeypatch):
    import forebay.spark.stream as module

    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    rows = send(store, 1, 2)
    pace = {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "60s"}
    stream = Stream(path, startingOffsets="earliest", **pace)
    # The first batch comes at once, as with the connector.
    assert stream.trigger() == rows
    rows = send(store, 3, 4)
    assert stream.trigger() is None
    now[0] += 59
    assert stream.trigger() is None
    now[0] += 1
    assert stream.trigger() == rows
    rows = send(store, 5, 6, 7, 8)
    assert stream.trigger() is None
    rows += send(store, 9)
    assert stream.trigger() == rows
    rows = send(store, 10)
    # An available-now stream does not wait.
    assert stream.available_now() == [rows]


def test_an_available_now_stream_reads_what_exists_at_its_start(store, path):
    rows = send(store, *range(50)) + send(store, *range(50), queue=1)
    stream = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    first = stream.trigger()
    store.create_topic("orders", queues=6)
    later = send(store, "later") + send(store, "new", queue=5)
    found = first + stream.drain()
    assert sorted(found) == sorted(rows)
    assert len(first) == 40
    assert stream.available_now() == [sorted(later)]
    assert stream.available_now() == []


def test_the_latest_offsets_are_reported(store, path):
    stream = Stream(path, maxOffsetsPerTrigger="3")
    assert stream.reader.reportLatestOffset() is None
    stream.start()
    send(store, *range(10))
    stream.trigger()
    latest = stream.reader.reportLatestOffset()
    assert latest["stores"][str(path)]["topics"] == {"orders": {"0": 10}}
    assert offsets_of(stream, path) == {"orders": {"0": 3}}


def test_the_number_of_tasks_follows_the_batch_size_or_the_options(store, path):
    send(store, *range(100))
    stream = Stream(path, parallelism=4, startingOffsets="earliest")
    assert [len(part) for part in stream.run(stream.plan())] == [100]
    stream = Stream(path, startingOffsets="earliest", minPartitions="4")
    assert [len(part) for part in stream.run(stream.plan())] == [25] * 4
    stream = Stream(path, startingOffsets="earliest", maxRecordsPerPartition="40")
    assert all(len(part) <= 40 for part in stream.run(stream.plan()))


# --- what appears while it runs -------------------------------------------------------------------


def test_new_topics_and_queues_are_read_from_their_beginning(store, path):
    stream = Stream(path, subscribePattern="o.*")
    assert stream.trigger() is None
    rows = send(store, 1, 2)
    assert stream.trigger() == rows
    store.create_topic("orders", queues=8)
    rows = send(store, 3, queue=7) + send(store, 4, topic="others")
    send(store, 5, topic="bills")
    assert stream.trigger() == sorted(rows)
    named = Stream(path, subscribe="orders,late")
    assert named.trigger() is None
    rows = send(store, 6, topic="late")
    assert named.trigger() == rows


def test_a_queue_that_waits_for_its_turn_is_recorded(store, path):
    """So that retention of its messages is detected."""
    store.create_topic("orders", queues=6)
    pace = {"maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "2"}
    stream = Stream(path, **pace)
    assert stream.trigger() is None
    rows = [send(store, queue, queue=queue)[0] for queue in range(6)]
    found = stream.trigger()
    assert len(found) == 2
    known = offsets_of(stream, path)["orders"]
    assert sum(known.values()) == 2
    assert len(known) == 6
    found += stream.drain()
    assert sorted(found) == rows
    # One more message alone waits, and makes no batch although its queue is new.
    store.create_topic("orders", queues=8)
    send(store, "late", queue=7)
    assert stream.trigger() is None


def test_only_assigned_queues_are_read(store, path):
    store.create_topic("orders", queues=4)
    send(store, 1, queue=1)
    stream = Stream(path, assign='{"orders":[1,3]}')
    assert stream.trigger() is None
    send(store, 2)
    rows = send(store, 3, queue=1) + send(store, 4, queue=3)
    assert stream.trigger() == rows


def test_new_stores_that_match_a_pattern_are_read(tmp_path):
    stream = Stream(tmp_path / "shard-*")
    assert stream.trigger() is None
    (tmp_path / "shard-9").mkdir()
    with forebay.open(tmp_path / "shard-1", **SMALL) as one:
        rows = send(one, 1, 2)
        # The store is first recorded in the checkpoint.
        assert stream.trigger() == []
        assert stream.trigger() == rows
        with forebay.open(tmp_path / "shard-2", **SMALL) as two:
            rows = send(one, 3)
            later = send(two, 4, 5)
            assert stream.trigger() == rows
            assert stream.trigger() == later
            rows = send(two, 6)
            assert stream.trigger() == rows
    shutil.rmtree(tmp_path / "shard-2")
    with pytest.raises(StoreNotFoundError, match="shard-2"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() is None
    with forebay.open(tmp_path / "shard-1") as one:
        rows = send(one, 7)
        assert stream.trigger() == rows


def test_an_unreadable_store_is_skipped_until_it_is_readable(tmp_path):
    rows = {}
    for name in ("a", "b"):
        with forebay.open(tmp_path / name, **SMALL) as store:
            rows[name] = send(store, name, 1, 2)
    both = [str(tmp_path / name) for name in ("a", "b")]
    begin = {"startingOffsets": "earliest", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "2"}
    stream = Stream(both, **begin)
    assert len(stream.trigger()) == 2
    log = tmp_path / "b" / "commitlog"
    log.rename(tmp_path / "aside")
    log.write_text("no directory")
    stream.restart()
    assert stream.drain() == rows["a"][1:]
    stream.restart(failOnDataLoss="true")
    with pytest.raises(UnsupportedError, match="commitlog") as caught:
        stream.trigger()
    assert "failOnDataLoss" in caught.value.__notes__[0]
    log.unlink()
    (tmp_path / "aside").rename(log)
    stream.restart()
    assert stream.drain() == rows["b"][1:]


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_planned_batch_is_repeated_unchanged(store, path):
    rows = send(store, *range(20))
    stream = Stream(path, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    end = stream.plan()
    stream.run(end)
    # The query dies before the commit; meanwhile more messages come.
    rows += send(store, *range(20, 25))
    stream.restart()
    assert stream.run(end) == [rows[:8]]
    stream.commit(end)
    assert stream.drain() == rows[8:]


def test_a_stream_continues_while_its_store_is_closed_and_opened(path):
    found, expected = [], []
    with forebay.open(path, **SMALL) as store:
        send(store, "before")
    stream = Stream(path)
    stream.start()
    for number in range(12):
        with forebay.open(path) as store:
            expected += send(store, number, number + 100)
            if number % 2:
                found += stream.trigger() or []
            expected += send(store, number + 200, flush=False)
        # While no process has it open.
        if number % 3:
            found += stream.trigger() or []
        if number % 5 == 4:
            stream.restart()
    assert found + (stream.trigger() or []) == expected
    assert json.loads(stream.offset)["stores"][str(path)]["epoch"] > 10


def test_messages_that_are_not_durable_are_not_read(path):
    """A power loss may undo it, and give its offset to another message."""
    writer = Writer(path, **LAZY, **SMALL)
    stream = Stream(path, startingOffsets="earliest")
    writer.ask("send orders 0 0 10")
    assert stream.trigger() is None
    writer.ask("flush")
    expected = [("orders", 0, number, b"%d" % number) for number in range(30)]
    assert stream.trigger() == expected[:10]
    writer.ask("send orders 0 10 10")
    with forebay.open(path, mode="r") as reader:
        until(lambda: reader.topics["orders"].queues[0].max_offset == 20)
        assert reader.durable_position < reader.get("orders", 0, 19).position
    assert stream.trigger() is None
    writer.ask("flush")
    writer.ask("send orders 0 20 10")
    assert stream.trigger() == expected[10:20]
    writer.close()
    assert stream.trigger() == expected[20:]


def test_a_stream_continues_after_its_writer_was_killed(path):
    expected = []
    stream = Stream(path, startingOffsets="earliest")
    found = []
    for number in range(4):
        writer = Writer(path, **LAZY, **SMALL)
        writer.ask(f"send orders 0 {20 * number} 10")
        writer.ask("flush")
        if number % 2:
            found += stream.trigger() or []
        writer.ask(f"send orders 0 {20 * number + 10} 10")
        writer.kill()
        # Unflushed messages exist, but are not durable until the next writer flushes them.
        found += stream.trigger() or []
        assert len(found) == 20 * number + 10
        if number == 2:
            stream.restart()
        first = 20 * number
        expected += [("orders", 0, at, b"%d" % at) for at in range(first, first + 20)]
    Writer(path).close()
    assert found + stream.trigger() == expected
    assert stream.trigger() is None


@pytest.mark.parametrize("seed", range(200 if os.environ.get("FOREBAY_PROOF") else 6))
def test_each_message_is_in_the_sink_once_whatever_happens(path, seed):
    """Batches are interrupted at every point; writers come, go and are killed."""
    chance = random.Random(seed)
    pace = {"maxOffsetsPerTrigger": str(chance.choice([1, 7, 50]))}
    if chance.random() < 0.5:
        pace |= {"maxBytesPerTrigger": str(chance.choice([500, 5000]))}
    stream = Stream(path, startingOffsets="earliest", minPartitions="3", **pace)
    sink: dict[str, list] = {}
    sent = 0
    for _ in range(3):
        writer = Writer(path, **SMALL, **(LAZY if chance.random() < 0.7 else {}))
        for _ in range(chance.randrange(4, 9)):
            count = chance.randrange(1, 60)
            writer.ask(f"send orders {chance.randrange(2)} {sent} {count}")
            sent += count
            if chance.random() < 0.6:
                writer.ask("flush")
            some_batches(stream, sink, chance)
        writer.kill() if chance.random() < 0.6 else writer.close()
        some_batches(stream, sink, chance)
    Writer(path).close()
    while (end := stream.plan()) is not None:
        sink[end] = [row for part in stream.run(end) for row in part]
        stream.commit(end)
    rows = [row for batch in sink.values() for row in batch]
    assert sorted(int(body) for *_, body in rows) == list(range(sent))
    assert len({row[:3] for row in rows}) == sent


def some_batches(stream, sink, chance):
    """Run batches as Spark does, and end the query at a random point of one of them.

    The sink keeps the rows of a batch by its end, as the stand-in does not number batches.
    """
    for _ in range(chance.randrange(4)):
        end = stream.plan()
        if end is None:
            return
        # A planned batch is in the checkpoint: Spark runs it until it is done.
        for _ in range(chance.randrange(3)):
            stream.restart()
            if chance.random() < 0.5:
                stream.run(end)
        sink[end] = [row for part in stream.run(end) for row in part]
        if chance.random() < 0.3:
            stream.restart()
            sink[end] = [row for part in stream.run(end) for row in part]
        stream.commit(end)


# --- data that is gone ----------------------------------------------------------------------------


def send_until_retired(path, count):
    """Send until retention deletes all but the newest files; return the first offset."""
    with forebay.open(path, retention_bytes=1, disk_reserve=0) as store:
        send(store, *("x" * 1000 for _ in range(count)))
        until(lambda: store.topics["orders"].queues[0].min_offset > 0)
        send(store, "last")
        return store.topics["orders"].queues[0].min_offset


def test_messages_that_retention_removed_fail_a_stream_or_are_skipped(path):
    with forebay.open(path, **SMALL) as store:
        send(store, "first")
    stream = Stream(path, startingOffsets="earliest")
    stream.start()
    first = send_until_retired(path, 60)
    with pytest.raises(OffsetOutOfRangeError, match="have been removed") as caught:
        stream.trigger()
    assert (caught.value.offset, caught.value.min_offset) == (0, first)
    stream.restart(failOnDataLoss="false")
    rows = stream.trigger()
    assert [row[2] for row in rows] == list(range(first, 62))
    assert stream.trigger() is None


def test_messages_that_are_removed_after_a_batch_was_planned(path):
    with forebay.open(path, **SMALL) as store:
        send(store, *("x" * 1000 for _ in range(30)))
    stream = Stream(path, startingOffsets="earliest")
    end = stream.plan()
    first = send_until_retired(path, 60)
    assert first > 30
    with pytest.raises(ForebayError):
        stream.run(end)
    stream.restart()
    with pytest.raises(OffsetOutOfRangeError):
        stream.run(end)
    stream.restart(failOnDataLoss="false")
    assert [row for part in stream.run(end) for row in part] == []
    stream.commit(end)
    assert [row[2] for row in stream.trigger()] == list(range(first, 91))


def test_lost_messages_of_a_queue_without_a_recorded_offset_are_noticed(path):
    """A queue appears, and is trimmed while the stream is down or after its first plan."""
    with forebay.open(path, **SMALL) as store:
        store.create_topic("orders", queues=2)
    stream = Stream(path)
    assert stream.trigger() is None
    with forebay.open(path) as store:
        store.create_topic("orders", queues=3)
        send(store, *range(30), queue=2)
        end = stream.plan()
        assert offsets_of(stream, path) == {"orders": {"0": 0, "1": 0}}
    with forebay.open(path, retention_bytes=1, disk_reserve=0) as store:
        send(store, *("x" * 1000 for _ in range(60)), queue=2)
        until(lambda: store.topics["orders"].queues[2].min_offset > 0)
        send(store, "last", queue=2)
        first = store.topics["orders"].queues[2].min_offset
    for run in (lambda: stream.run(end), stream.trigger):
        stream.restart(failOnDataLoss="true")
        with pytest.raises(OffsetOutOfRangeError, match=f"messages 0 to {first - 1} of orders-2"):
            run()
    stream.restart(failOnDataLoss="false")
    assert [row[2] for row in stream.trigger()] == list(range(first, 91))
    # A new stream misses nothing, wherever it starts.
    for begin in ("earliest", "latest"):
        fresh = Stream(path, startingOffsets=begin)
        assert len(fresh.trigger() or []) == (91 - first if begin == "earliest" else 0)
        assert fresh.trigger() is None


def test_a_new_store_without_its_first_messages_has_lost_nothing(tmp_path):
    stream = Stream(tmp_path / "shard-*")
    assert stream.trigger() is None
    path = tmp_path / "shard-1"
    with forebay.open(path, **SMALL) as store:
        send(store, "first")
        send(store, "all there is", queue=1)
    first = send_until_retired(path, 60)
    assert [row[2] for row in stream.drain()] == list(range(first, 62))
    with forebay.open(path) as store:
        assert store.topics["orders"].queues[1].min_offset == 1
        rows = send(store, "more") + send(store, "fresh", queue=1)
        assert stream.trigger() == rows


def test_losses_of_a_new_store_count_once_it_is_planned(tmp_path):
    stream = Stream(tmp_path / "shard-*")
    assert stream.trigger() is None
    path = tmp_path / "shard-1"
    with forebay.open(path, **SMALL) as store:
        rows = send(store, *range(30))
    batches = []
    while (end := stream.plan()) is not None:
        batches.append((stream.offset, end, stream.run(end)))
        stream.commit(end)
    assert sorted(row for *_, parts in batches for part in parts for row in part) == rows
    first = send_until_retired(path, 60)
    # Each batch was planned, and the driver died before its commit.
    for stream.offset, end, parts in batches:
        stream.restart()
        if parts:
            with pytest.raises(OffsetOutOfRangeError, match=f"messages 0 to {first - 1} of"):
                stream.run(end)
        else:
            assert stream.run(end) == []
    # All available messages are read in one run, though the store is recorded first.
    stream = Stream(tmp_path / "*")
    stream.offset = batches[0][0]
    found = [row[2] for batch in stream.available_now() for row in batch]
    assert found == list(range(first, 91))


def test_a_log_that_came_back_shorter_is_not_read_across(path, tmp_path):
    """A backup replaces a store, and is written to until it is longer."""
    with forebay.open(path, **SMALL) as store:
        kept = send(store, *range(10))
    store_files.copy(path, tmp_path / "backup")
    with forebay.open(path) as store:
        send(store, *range(10, 20))
    stream = Stream(path, startingOffsets="earliest")
    assert len(stream.trigger()) == 20
    shutil.rmtree(path)
    store_files.copy(tmp_path / "backup", path)
    with pytest.raises(LogShrunkError) as caught:
        stream.trigger()
    assert caught.value.path == str(path)
    with forebay.open(path) as store:
        fresh = send(store, *range(100, 120))
    stream.restart()
    with pytest.raises(LogShrunkError, match="failOnDataLoss"):
        stream.trigger()
    # Messages in the backup come twice; none is skipped.
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == kept + fresh
    assert stream.trigger() is None


def test_a_log_that_lost_its_end_is_read_from_there_on(path):
    """The power fails, and the disk had lied: messages reported durable are missing."""
    with forebay.open(path, **SMALL) as store:
        kept = send(store, *range(10))
    stream = Stream(path, startingOffsets="earliest")
    assert stream.trigger() == kept
    with forebay.open(path) as store:
        end = store.durable_position
        lost = send(store, *range(10, 20))
        assert stream.trigger() == lost
    with open(path / "commitlog" / f"{0:020}", "r+b") as log:
        log.seek(end)
        log.write(bytes(2000))
    os.unlink(path / "forebay.offsets")
    state = bytearray((path / "forebay.state").read_bytes())
    # No clean close, and a different boot.
    state[12:32] = bytes(20)
    for mark in (128, 192, 256, 384):
        state[mark : mark + 8] = end.to_bytes(8, "little")
    (path / "forebay.state").write_bytes(state)
    (path / "abort").write_text("         1 forebay")
    with forebay.open(path) as store:
        assert store.recovery.end == end
        fresh = send(store, *range(50, 80))
    # Longer than before, and with a message at each offset that was read.
    with pytest.raises(LogShrunkError) as caught:
        stream.trigger()
    assert caught.value.end == end
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == fresh
    assert stream.trigger() is None


def test_a_recreated_store_is_a_different_one(path):
    with forebay.open(path, **SMALL) as store:
        send(store, *range(10))
    stream = Stream(path, startingOffsets="earliest")
    assert len(stream.trigger()) == 10
    shutil.rmtree(path)
    with forebay.open(path, **SMALL) as store:
        rows = send(store, *range(100, 115))
        with pytest.raises(LogShrunkError, match="another one"):
            stream.trigger()
        stream.restart(failOnDataLoss="false")
        assert stream.trigger() == rows
        assert stream.trigger() is None


# --- progress as a group --------------------------------------------------------------------------


def table_of(path):
    return json.loads((path / "config" / "consumerOffset.json").read_text())["offsetTable"]


def test_progress_is_recorded_under_a_group(store, path):
    rows = send(store, 1, 2, 3) + send(store, 4, queue=1)
    # As RocketMQ writes it: queue numbers are member names without quotes.
    others = '{\n"offsetTable":{"orders@billing":{0:1,1:0},"a{1:2}@b":{-1:3}},"pull":{"x":{}}}'
    (path / "config" / "consumerOffset.json").write_text(others)
    stream = Stream(path, startingOffsets="earliest", group="etl", maxOffsetsPerTrigger="2")
    end = stream.plan()
    assert table_of(path)["orders@etl"] == {"0": 0, "1": 0}
    stream.run(end)
    assert table_of(path)["orders@etl"] == {"0": 0, "1": 0}
    assert sorted(stream.drain()) == rows
    table = table_of(path)
    assert table["orders@etl"] == {"0": 3, "1": 1}
    assert table["orders@billing"] == {"0": 1, "1": 0}
    assert table["a{1:2}@b"] == {"-1": 3}
    left = {name for name in os.listdir(path / "config") if not name.startswith("topics")}
    names = ("json", "json.bak", "lock")
    assert left == {f"consumerOffset.{name}" for name in names}


def test_retention_keeps_what_a_group_has_not_read(path):
    with forebay.open(path, **SMALL) as store:
        send(store, "first")
    stream = Stream(path, startingOffsets="earliest", group="etl")
    stream.plan()
    with forebay.open(path, retention_bytes=1, disk_reserve=0) as store:
        rows = send(store, *("x" * 1000 for _ in range(60)))
        assert stream.trigger()[1:] == rows
        assert store.topics["orders"].queues[0].min_offset == 0
        # After that it may be deleted.
        assert stream.trigger() is None
        until(lambda: store.topics["orders"].queues[0].min_offset > 0)


def test_an_invalid_table_of_groups_is_not_changed_and_the_stream_continues(store, path, caplog):
    table = path / "config" / "consumerOffset.json"
    table.write_text("half a tab")
    rows = send(store, 1)
    stream = Stream(path, startingOffsets="earliest", group="etl")
    assert stream.trigger() == rows
    assert table.read_text() == "half a tab"
    assert "cannot record the progress of group etl" in caplog.text


def test_the_table_of_a_broker_is_not_changed(tmp_path, caplog):
    path = unpack("broker", tmp_path)
    before = sorted(found.name for found in path.rglob("*"))
    stream = Stream(path, subscribePattern=".*", startingOffsets="earliest", group="etl")
    assert stream.trigger()
    assert stream.trigger() is None
    assert sorted(found.name for found in path.rglob("*")) == before
    assert "cannot record the progress of group etl" in caplog.text


def test_a_brokers_store_that_grows_is_followed(tmp_path):
    """It has no epochs, so it is opened at each trigger."""
    path = unpack("broker", tmp_path)
    stream = Stream(path, subscribePattern=".*")
    assert stream.trigger() is None

    def fresh():
        # The store also delivers the broker's delayed message, which is overdue.
        return [row for row in stream.trigger() if row[0] == "fresh"]

    with forebay.open(path, adopt=True) as store:
        rows = send(store, 1, 2, topic="fresh")
        assert fresh() == rows
        rows = send(store, 3, topic="fresh")
        assert fresh() == rows
