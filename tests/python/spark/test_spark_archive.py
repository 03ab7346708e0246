"""Archives read by Spark give the same rows as the stores they were made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import s3_support
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThan
from sparks import Events, at, send_one

import forebay
import forebay.archive
import forebay.spark
from forebay.archive.local import LocalFiles
from forebay.spark.options import parse_options
from forebay.spark.reader import PushdownReader

# Workers inherit these from the session, which the first test starts.
for name, value in s3_support.CREDENTIALS.items():
    os.environ.setdefault(name, value)

FILE = 8192
TOPICS = ("orders", "bills", "one")


@dataclass
class Archived:
    """A closed store, its archive, and the messages that were sent to the store."""

    store: str
    path: str
    sent: Events

    def rows(self, *topics: str) -> list[dict[str, Any]]:
        """Return all archived rows in the connector's form."""
        return [sent.kafka() for sent in self.sent.of(*topics)]


def order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by the given topic, partition and offset."""
    return sorted(rows, key=lambda r: (TOPICS.index(r["topic"]), r["partition"], r["offset"]))


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """Return an archive of many small log files."""
    root = tmp_path_factory.mktemp("archived")
    sent = []
    with forebay.open(root / "events", commitlog_file_size=FILE, default_queues=3) as store:
        for number in range(360):
            topic = TOPICS[number % 3]
            sent.append(send_one(store, topic, number, queue=None if topic == "orders" else 0))
        store.flush()
        end = store.archive(root / "archive").position
    there = [message for message in sent if message.position < end]
    assert 300 < len(there) < len(sent)
    return Archived(str(root / "events"), str(root / "archive"), Events("", there))


def read(spark: Any, *paths: object, **options: object) -> Any:
    return spark.read.format("forebay").options(**options).load([str(path) for path in paths])


def dicts(frame: Any) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


@pytest.mark.parametrize("parts", [1, 5, 17])
def test_an_archive_gives_the_rows_that_were_sent(spark, archived, parts):
    frame = read(
        spark,
        archived.path,
        subscribe="orders,bills,one",
        includeHeaders="true",
        minPartitions=parts,
    )
    assert frame.rdd.getNumPartitions() == parts
    assert order(dicts(frame)) == archived.rows(*TOPICS)


def test_columns_and_the_name_of_the_archive(spark, archived):
    columns = "store,message_id,tags,offset,value"
    frame = read(spark, archived.path, subscribe="bills", columns=columns)
    found = sorted(dicts(frame), key=lambda row: row["offset"])
    assert found == [
        {
            "store": archived.path,
            "message_id": sent.message_id,
            "tags": sent.tags,
            "offset": sent.offset,
            "value": sent.body,
        }
        for sent in archived.sent.of("bills")
    ]
    assert read(spark, archived.path, subscribe="bills", columns="store").count() == len(found)


def test_offsets_times_and_patterns_mean_what_they_do_for_stores(spark, archived):
    ones = archived.sent.of("one")
    time = ones[40].timestamp
    last = ones[-1].offset
    for options, expected in (
        ({"subscribePattern": "o.e"}, ones),
        (
            {"assign": '{"one":[0]}', "startingTimestamp": time},
            [s for s in ones if s.timestamp >= time],
        ),
        ({"subscribe": "one", "endingTimestamp": time}, [s for s in ones if s.timestamp < time]),
        ({"subscribe": "one", "startingOffsets": '{"one":{"0":7}}'}, ones[7:]),
        ({"subscribe": "one", "endingOffsets": '{"one":{"0":9}}'}, ones[:9]),
        ({"subscribe": "one", "maxRecordsPerPartition": 10}, ones),
    ):
        frame = read(spark, archived.path, columns="offset,timestamp", **options)
        found = sorted((row["offset"], row["timestamp"]) for row in dicts(frame))
        assert found == [(sent.offset, at(sent.timestamp)) for sent in expected], options
    assert frame.rdd.getNumPartitions() >= len(ones) // 10
    beyond = {"subscribe": "one", "endingOffsets": json.dumps({"one": {"0": last + 2}})}
    with pytest.raises(PySparkException, match=f"no offset {last + 2}"):
        read(spark, archived.path, **beyond).count()
    there = read(spark, archived.path, failOnDataLoss="false", **beyond)
    assert there.count() == len(ones)
    with pytest.raises(PySparkException, match="no topic 'nosuch'"):
        read(spark, archived.path, subscribe="nosuch").count()


def test_archives_and_stores_are_one_dataframe(spark, archived):
    frame = read(spark, archived.store, archived.path, subscribe="one", columns="store,offset")
    counts = {row["store"]: row["count"] for row in dicts(frame.groupBy("store").count())}
    assert counts == {archived.store: 120, archived.path: len(archived.sent.of("one"))}


def test_a_log_file_that_changed_fails_the_job_unless_loss_is_allowed(spark, archived, tmp_path):
    copy = tmp_path / "archive"
    with forebay.open(archived.store, mode="r") as store:
        store.archive(copy)
    names = sorted(path.name for path in (copy / "commitlog").iterdir())
    ones = [sent for sent in archived.sent.of("one") if FILE <= sent.position < 2 * FILE]
    log = copy / "commitlog" / names[1]
    good = log.read_bytes()
    victim = ones[1]
    assert victim.body
    at = good.index(victim.body, victim.position - FILE)
    options = {"subscribe": "one", "columns": "offset"}
    count = len(archived.sent.of("one"))
    for bad, lost in (
        (good[:at] + b"\x00" + good[at + 1 :], 1),
        (good[: ones[2].position - FILE], len(ones) - 2),
        (None, len(ones)),
    ):
        log.unlink() if bad is None else log.write_bytes(bad)
        with pytest.raises(PySparkException) as raised:
            read(spark, copy, **options).count()
        assert str(log) in str(raised.value) and "CorruptError" in str(raised.value)
        frame = read(spark, copy, failOnDataLoss="false", **options)
        assert frame.count() == count - lost
    # A byte after the last record belongs to no message, but the file has changed.
    log.write_bytes(good[:-1] + b"\x01")
    with pytest.raises(PySparkException, match="has changed since it was archived"):
        read(spark, copy, **options).count()
    assert read(spark, copy, failOnDataLoss="false", **options).count() == count


def test_a_missing_table_leaves_a_gap_that_is_reported(spark, archived, tmp_path):
    copy = tmp_path / "archive"
    with forebay.open(archived.store, mode="r") as store:
        store.archive(copy)
    names = sorted(path.name for path in (copy / "blocks").iterdir())
    (copy / "blocks" / names[2]).unlink()
    lost = [sent for sent in archived.sent.of("one") if sent.position // FILE == 2]
    options = {"subscribe": "one", "columns": "offset"}
    with pytest.raises(PySparkException, match=f"{len(lost)} messages of one-0") as raised:
        read(spark, copy, minPartitions=1, **options).count()
    assert names[2] in str(raised.value)
    frame = read(spark, copy, failOnDataLoss="false", **options)
    assert frame.count() == len(archived.sent.of("one")) - len(lost)


def test_a_path_that_is_not_an_archive_is_skipped_only_if_loss_is_allowed(
    spark, archived, tmp_path
):
    (tmp_path / "forebay.archive").write_text("mine")
    with pytest.raises(PySparkException, match="NotAStoreError"):
        read(spark, tmp_path, archived.path, subscribe="one").count()
    frame = read(spark, tmp_path, archived.path, subscribe="one", failOnDataLoss="false")
    assert frame.count() == len(archived.sent.of("one"))
    with pytest.raises(PySparkException, match="environment") as raised:
        read(spark, "s3://name:secret@bucket/prefix", subscribe="one").count()
    assert "secret" not in str(raised.value)


def test_pushed_filters_narrow_the_read_of_an_archive(archived, monkeypatch):
    sent = archived.sent.of("orders", "one")
    half = sent[len(sent) // 2]
    columns = "store,topic,partition,offset,key,tags,timestamp"
    fetched = 0
    plain = LocalFiles.read

    def counted(self, name, start=0, length=None):
        nonlocal fetched
        data = plain(self, name, start, length)
        fetched += len(data) if name.startswith("commitlog") else 0
        return data

    monkeypatch.setattr(LocalFiles, "read", counted)
    for pushed, meant in (
        ([EqualTo(("key",), b"second")], lambda one: one.keys[:1] == ["second"]),
        ([EqualTo(("key",), b"k30")], lambda one: one.keys[:1] == ["k30"]),
        ([In(("key",), (b"k30", b"k31", b"k42"))], lambda one: one.keys[:1] in (["k30"], ["k42"])),
        ([EqualTo(("tags",), "paid")], lambda one: one.tags == "paid"),
        ([EqualTo(("topic",), "one")], lambda one: one.topic == "one"),
        (
            [GreaterThan(("offset",), 20), LessThan(("offset",), 30)],
            lambda one: 20 < one.offset < 30,
        ),
        (
            [GreaterThan(("timestamp",), at(half.timestamp))],
            lambda one: one.timestamp > half.timestamp,
        ),
        ([EqualTo(("store",), "elsewhere")], lambda _: False),
    ):
        options = {"path": archived.path, "subscribe": "orders,one", "columns": columns}
        reader = PushdownReader(parse_options(options), 3)
        list(reader.pushFilters(pushed))
        found = []
        fetched = 0
        for partition in reader.partitions():
            for batch in reader.read(partition):
                found += [
                    (row["topic"], row["partition"], row["offset"]) for row in batch.to_pylist()
                ]
        expected = [(one.topic, one.queue, one.offset) for one in sent if meant(one)]
        assert sorted(found) == sorted(expected), pushed
        if "k30" in str(pushed):
            assert len(expected) * FILE == fetched > 0


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server; the value is the query of URIs that lead to it."""
    with s3_support.running() as query:
        yield query


def test_an_object_store_is_read_by_ranges(spark, archived, s3):
    uri = f"{s3_support.bucket(s3)}?{s3}"
    with forebay.open(archived.store, mode="r") as store:
        store.archive(uri)
    frame = read(spark, uri, subscribe="orders,bills,one", includeHeaders="true", minPartitions=4)
    assert order(dicts(frame)) == archived.rows(*TOPICS)
    both = read(spark, uri, Path(archived.store), subscribe="one")
    assert both.count() == 120 + len(archived.sent.of("one"))
    filesystem, path = fs.FileSystem.from_uri(uri)
    with filesystem.open_output_stream(f"{path}/commitlog/{0:020}") as stream:
        stream.write(bytes(1000))
    lost = sum(1 for sent in archived.sent.of("one") if sent.position < FILE)
    with pytest.raises(PySparkException, match="CorruptError"):
        read(spark, uri, subscribe="one").count()
    holding = read(spark, uri, subscribe="one", failOnDataLoss="false")
    assert holding.count() == len(archived.sent.of("one")) - lost > 0


def test_an_archive_of_a_partition_log_gives_the_rows_of_the_store(spark, s3, tmp_path):
    options = {"segment_bytes": 8192, "default_queues": 2, "compression": "lz4"}
    # Nothing is compacted until the test asks for it.
    options["log_cleaner_backoff_ms"] = 3_600_000
    log, uri = tmp_path / "log", f"{s3_support.bucket(s3)}?{s3}"
    with forebay.open(log, engine="partitionlog", cleanup_policy="compact", **options) as store:
        for number in range(300):
            headers = [("n", str(number).encode()), ("nil", None)]
            key, body = b"\xff%d" % (number % 50), None if number % 7 == 0 else os.urandom(200)
            store.send("orders", body, key=key, headers=headers)
            if number == 150:
                store.roll()
                store.archive(uri)
        store.roll()
        every = dicts(read(spark, log, subscribe="orders", includeHeaders="true"))
        assert store.compact().complete
        store.archive(uri)
        store.archive(tmp_path / "archive")
        kept = order(dicts(read(spark, log, subscribe="orders", includeHeaders="true")))
    found = read(spark, tmp_path / "archive", subscribe="orders", includeHeaders="true")
    assert order(dicts(found)) == kept
    # This one has what was there before the compaction, too.
    found = order(dicts(read(spark, uri, subscribe="orders", includeHeaders="true")))
    assert len(kept) < len(found) < len(every)
    assert all(row in every for row in found) and all(row in found for row in kept)
    after = {"assign": '{"orders":[1]}', "startingTimestamp": at_ms(found[-1])}
    assert read(spark, uri, **after).count() >= 1
    with pytest.raises(PySparkException, match="read_committed"):
        read(spark, uri, subscribe="orders", **{"kafka.isolation.level": "read_committed"}).count()


def at_ms(row: dict[str, Any]) -> int:
    return int(row["timestamp"].timestamp() * 1000)
