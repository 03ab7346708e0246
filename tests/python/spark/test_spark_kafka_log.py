"""Kafka's log directories through the source's own reader and stream, without a session."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from golden_stores import damage_second_batch, unpack_partitions
from hypothesis import given, settings
from hypothesis import strategies as some
from kafka_batches import Record, batch, write
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan
from streaming import Stream

import forebay
from forebay.errors import CorruptError, InvalidOptionError, OffsetOutOfRangeError
from forebay.spark.options import parse_options
from forebay.spark.reader import ForebayReader, PushdownReader
from forebay.times import milliseconds

NAMES = ("txn-0", "compacted-0", "lz4-0", "appendtime-0", "v0-0")
TOPICS = ",".join(name.removesuffix("-0") for name in NAMES)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory that Kafka wrote."""
    return unpack_partitions(tmp_path_factory.mktemp("kafka"), NAMES)


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    reading = ForebayReader(parse_options({"path": str(path), **options}), 3)
    return [
        row
        for part in reading.partitions()
        for found in reading.read(part)
        for row in found.to_pylist()
    ]


def expected(store: forebay.Store, topic: str) -> list[dict[str, Any]]:
    """Return the rows of a topic in the columns of the Kafka connector, from the store itself."""
    return [
        {
            "key": it.key_bytes,
            "value": None if it.is_null else it.body,
            "topic": topic,
            "partition": it.queue,
            "offset": it.offset,
            "timestamp": it.store_timestamp,
            "timestampType": int(topic == "appendtime"),
            "headers": [{"key": name, "value": value} for name, value in it.headers] or None,
        }
        for it in store.tail(topic, start="earliest", follow=False)
    ]


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [row | {"timestamp": milliseconds(row["timestamp"])[0]} for row in rows]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_store(root: Path, isolation: Any):
    options = {"includeHeaders": "true", "kafka.isolation.level": isolation, "minPartitions": "7"}
    rows = comparable(read(root, subscribe=TOPICS, **options))
    with forebay.open(root, mode="r", isolation=isolation) as store:
        wanted = [row for topic in TOPICS.split(",") for row in expected(store, topic)]
    assert rows == sorted(wanted, key=lambda row: (row["topic"], row["offset"]))


def test_offsets_and_times_select_rows_as_they_do_in_kafka(root: Path):
    with forebay.open(root, mode="r") as store:
        wanted = expected(store, "compacted")
        # The starting offset is one that compaction has removed.
        offsets = {row["offset"] for row in wanted}
        start = next(offset for offset in range(100, 2000) if offset not in offsets)
        given = {"startingOffsets": json.dumps({"compacted": {"0": start}})}
        rows = comparable(read(root, subscribe="compacted", **given))
        assert [row["offset"] for row in rows] == sorted(it for it in offsets if it > start)
        time = wanted[100]["timestamp"]
        rows = read(root, subscribe="compacted", startingTimestamp=str(time))
        assert min(row["offset"] for row in rows) == store.offset_at("compacted", 0, time)


def test_a_pattern_leaves_internal_topics_out(root: Path, tmp_path: Path):
    for name in ("orders", "__consumer_offsets"):
        shutil.copytree(root / "lz4-0", tmp_path / f"{name}-0")
    rows = read(tmp_path, subscribePattern=".*", columns="topic")
    assert {row["topic"] for row in rows} == {"orders"}
    assert read(tmp_path, subscribe="__consumer_offsets", columns="offset")


def test_damage_is_data_loss_and_gaps_are_not(root: Path, tmp_path: Path):
    shutil.copytree(root / "lz4-0", tmp_path / "lz4-0")
    _, lost = damage_second_batch(tmp_path / "lz4-0" / f"{0:020}.log")
    with pytest.raises(CorruptError, match=f"{len(lost)} messages of lz4-0"):
        read(tmp_path, subscribe="lz4")
    offsets = {row["offset"] for row in read(tmp_path, subscribe="lz4", failOnDataLoss="false")}
    assert offsets.isdisjoint(lost) and len(offsets) >= len(lost)


def test_a_partition_that_became_shorter_since_the_plan_is_data_loss(root: Path, tmp_path: Path):
    shutil.copytree(root / "lz4-0", tmp_path / "lz4-0")
    reading = ForebayReader(parse_options({"path": str(tmp_path), "subscribe": "lz4"}), 1)
    (part,) = reading.partitions()
    log = tmp_path / "lz4-0" / f"{0:020}.log"
    first = 12 + struct.unpack_from(">i", log.read_bytes(), 8)[0]
    os.truncate(log, first)
    with pytest.raises((CorruptError, OffsetOutOfRangeError)):
        list(reading.read(part))


def test_the_isolation_is_checked_and_means_nothing_to_a_commit_log(tmp_path: Path):
    with forebay.open(tmp_path / "events") as store:
        store.send("orders", b"x")
    for level in ("read_committed", "READ_UNCOMMITTED"):
        options = {"kafka.isolation.level": level}
        assert len(read(tmp_path / "events", subscribe="orders", **options)) == 1
    with pytest.raises(InvalidOptionError, match="read_committed"):
        read(tmp_path / "events", subscribe="orders", **{"kafka.isolation.level": "serializable"})


@pytest.fixture(scope="module")
def unordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory whose timestamps fall and whose keys are no words."""
    folder = tmp_path_factory.mktemp("unordered")
    draw = Random(1)
    keys = [None, b"", b"a", b"a b", b"\xff ", b"b", "\N{SNOWMAN}".encode()]
    for queue in range(2):
        batches = [
            [
                (1_700_000_000_000 + draw.randrange(50), draw.choice(keys), b"x", [])
                for _ in range(draw.randrange(1, 6))
            ]
            for _ in range(20)
        ]
        write(folder / f"t-{queue}", batches)
    return folder


def test_filters_give_the_same_rows_though_times_fall(unordered: Path):
    columns = {"columns": "key,keys,partition,offset,timestamp"}
    options = parse_options({"path": str(unordered), "subscribe": "t", **columns})
    everything = read(unordered, subscribe="t", **columns)
    keys = [row["key"] for row in everything if row["key"] is not None]
    words = [row["keys"] for row in everything if row["keys"] is not None]
    time = some.sampled_from([row["timestamp"] for row in everything])
    filters = some.one_of(
        some.builds(lambda it: GreaterThanOrEqual(("timestamp",), it), time),
        some.builds(lambda it: LessThan(("timestamp",), it), time),
        some.builds(lambda it: EqualTo(("key",), it), some.sampled_from(keys)),
        some.builds(lambda it: In(("key",), tuple(it)), some.lists(some.sampled_from(keys))),
        some.builds(lambda it: EqualTo(("keys",), it), some.sampled_from(words)),
    )

    def passes(one: Any, row: dict[str, Any]) -> bool:
        value = row[one.attribute[0]]
        match one:
            case In():
                return value in one.value
            case EqualTo():
                return bool(value == one.value)
            case LessThan():
                return bool(value < one.value)
            case _:
                return bool(value >= one.value)

    @settings(max_examples=60, deadline=None)
    @given(some.lists(filters, min_size=1, max_size=3))
    def check(pushed: list[Filter]) -> None:
        reading = PushdownReader(options, 2)
        left = list(reading.pushFilters(pushed))
        found = [
            row
            for part in reading.partitions()
            for found in reading.read(part)
            for row in found.to_pylist()
            if all(passes(one, row) for one in left)
        ]
        wanted = [row for row in everything if all(passes(one, row) for one in pushed)]
        order = lambda row: (row["partition"], row["offset"])  # noqa: E731
        assert sorted(found, key=order) == sorted(wanted, key=order)

    check()


def records(*values: int) -> list[Record]:
    return [(1_700_000_000_000, None, b"%d" % value, []) for value in values]


def test_a_stream_follows_what_a_broker_appends_and_deletes(tmp_path: Path):
    write(tmp_path / "orders-0", [records(0, 1)])
    stream = Stream(tmp_path, startingOffsets="earliest")
    assert stream.trigger() == [("orders", 0, 0, b"0"), ("orders", 0, 1, b"1")]
    assert stream.trigger() is None
    log = tmp_path / "orders-0" / f"{0:020}.log"
    with log.open("ab") as file:
        file.write(batch(2, records(2)))
    write(tmp_path / "orders-1", [records(10)])
    assert stream.trigger() == [("orders", 0, 2, b"2"), ("orders", 1, 0, b"10")]
    # A new segment, after a gap as compaction leaves it.
    (tmp_path / "orders-0" / f"{7:020}.log").write_bytes(batch(7, records(7)))
    assert stream.trigger() == [("orders", 0, 7, b"7")]
    stream.restart()
    log.unlink()
    assert stream.trigger() is None
    other = Stream(tmp_path, startingOffsets='{"orders":{"0":1,"1":0}}')
    with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss"):
        other.trigger()


def test_a_stream_keeps_its_limits_over_gaps(root: Path):
    stream = Stream(
        root, subscribe="compacted", startingOffsets="earliest", maxOffsetsPerTrigger="300"
    )
    batches = stream.available_now()
    with forebay.open(root, mode="r") as store:
        wanted = [row["offset"] for row in expected(store, "compacted")]
    assert [row[2] for found in batches for row in found] == wanted
    assert len(batches) >= 2000 // 300
    sized = Stream(
        root, subscribe="compacted", startingOffsets="earliest", maxBytesPerTrigger="9000"
    )
    assert [row[2] for found in sized.available_now() for row in found] == wanted


def test_a_stream_of_committed_messages_waits_for_open_transactions(root: Path):
    options = {"subscribe": "txn", "startingOffsets": "earliest"}
    rows = Stream(root, **options, **{"kafka.isolation.level": "read_committed"}).drain()
    with forebay.open(root, mode="r", isolation="read_committed") as store:
        assert [row[2] for row in rows] == [row["offset"] for row in expected(store, "txn")]
    assert len(rows) < len(Stream(root, **options).drain())
