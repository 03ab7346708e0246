"""Reads through Spark itself, in one process with two cores."""

import base64
import gzip
import json
import zlib

import pytest
from golden_stores import KAFKA, ROCKETMQ, unpack
from pyspark.errors import PySparkException
from pyspark.sql import functions

import forebay.spark


def read(spark, path, **options):
    return spark.read.format("forebay").options(**options).load(str(path))


def dicts(frame):
    return frame.toArrow().to_pylist()


def test_spark_finds_the_format_by_itself(spark, events):
    """Must be the first test of the session: nothing has registered the format yet."""
    frame = read(spark, events.path, subscribe="orders")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert frame.count() == 80


def test_registration_passes_the_sessions_parallelism(spark, events, monkeypatch):
    parallelism = spark.sparkContext.defaultParallelism
    assert parallelism == 2
    forebay.spark.register(spark)
    frame = read(spark, events.path, subscribe="one")
    assert frame.rdd.getNumPartitions() == 2
    monkeypatch.setattr(type(spark.sparkContext), "defaultParallelism", 7)
    forebay.spark.register(spark)
    frame = read(spark, events.path, subscribe="one")
    assert frame.rdd.getNumPartitions() == 7
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(80))
    monkeypatch.undo()
    forebay.spark.register(spark)


def test_rows_are_those_of_the_kafka_connector(spark, events):
    frame = read(spark, events.path, subscribe="orders,one", includeHeaders="true")
    ordered = sorted(
        dicts(frame), key=lambda row: (row["topic"] != "orders", row["partition"], row["offset"])
    )
    assert ordered == [sent.kafka() for sent in events.of("orders", "one")]


def test_columns_are_selected_and_ordered_by_both_kinds_of_names(spark, events):
    expected = [sent.own() | {"value": sent.body} for sent in events.of("bills")]
    columns = list(expected[0])[::-1]
    frame = read(spark, events.path, subscribe="bills", columns=",".join(columns))
    assert frame.columns == columns
    found = sorted(dicts(frame), key=lambda row: (row["queue"], row["offset"]))
    assert found == expected


def test_spark_computes_over_every_row_once(spark, events):
    frame = read(spark, events.path, subscribePattern="orders|bills|one", minPartitions="5")
    total = functions.sum(functions.length("value")).alias("total")
    found = frame.groupBy("topic").agg(functions.count("*").alias("rows"), total).collect()
    assert {row.topic: (row.rows, row.total) for row in found} == {
        name: (80, sum(len(sent.body) for sent in events.of(name)))
        for name in ("orders", "bills", "one")
    }
    assert frame.filter("key is null").count() == sum(not sent.keys for sent in events.sent)


def test_an_empty_topic_gives_no_rows_and_the_same_columns(spark, events):
    frame = read(spark, events.path, subscribe="empty")
    assert (frame.count(), len(frame.columns)) == (0, 7)
    assert read(spark, events.path, subscribePattern="nothing").collect() == []


def test_offsets_and_limits_reach_the_tasks(spark, events):
    frame = read(
        spark,
        events.path,
        subscribe="one",
        startingOffsets='{"one":{"0":10}}',
        endingOffsets='{"one":{"0":40}}',
        maxRecordsPerPartition="7",
        columns="offset,body",
    )
    parts = frame.rdd.mapPartitions(lambda rows: [[row.offset for row in rows]]).collect()
    assert [len(part) for part in parts] == [6] * 5
    assert [offset for part in parts for offset in part] == list(range(10, 40))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "one of subscribe, subscribePattern and assign must be specified"),
        ({"subscribe": "one", "topic": "one"}, "no such option"),
        ({"subscribe": "one", "columns": "nothing"}, "the columns are key, value"),
    ],
)
def test_wrong_options_fail_when_the_frame_is_made(spark, events, options, reason):
    with pytest.raises(PySparkException) as caught:
        read(spark, events.path, **options)
    assert reason in str(caught.value)


def test_missing_stores_and_topics_fail_when_the_job_is_planned(spark, events, tmp_path):
    for path, options, reason in (
        (events.path, {"subscribe": "nothing"}, "there is no topic 'nothing'"),
        (tmp_path / "nowhere", {"subscribe": "one"}, "nowhere"),
        (
            events.path,
            {"subscribe": "one", "startingOffsets": '{"one":{"0":81}}'},
            "its bounds are 0 to 80",
        ),
        # A stream may start there, and a frame does not yet know whether it is one.
        (events.path, {"subscribe": "one", "startingOffsets": "latest"}, "can't be latest"),
    ):
        with pytest.raises(PySparkException) as caught:
            read(spark, path, **options).count()
        assert reason in str(caught.value)


def test_the_schema_is_fixed(spark, events):
    reader = spark.read.format("forebay").option("subscribe", "one")
    with pytest.raises(PySparkException, match="the schema is fixed"):
        reader.schema("value string").load(events.path).count()


def test_a_frame_is_a_snapshot_of_a_store_that_grows(spark, tmp_path):
    path = tmp_path / "live"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        producer = store.producer("t", queue=0)
        frames = []
        for _ in range(2):
            producer.send_batch([b"x"] * 100)
            # Reading the topics updates their queues for other processes too.
            assert store.topics["t"].queues[0].max_offset == 100 * len(frames) + 100
            frames.append(read(spark, path, subscribe="t"))
            assert frames[-1].count() == 100 * len(frames)
        assert frames[0].count() == 100
        assert frames[0].filter("offset >= 100").count() == 0


def test_a_brokers_directory_is_read_whole(spark, tmp_path):
    path = unpack("broker", tmp_path)
    with gzip.open(ROCKETMQ / "broker.jsonl.gz") as listing:
        messages = [message for message in map(json.loads, listing) if message["inQueue"]]
    columns = "topic,queue,offset,position,keys,tags,value,flag,sys_flag,reconsume_times,size,key"
    topics = ",".join({message["topic"] for message in messages})
    found = dicts(read(spark, path, subscribe=topics, columns=columns))
    expected = []
    for message in messages:
        body = base64.b64decode(message["body"])
        keys = message.get("keys") or None
        values = (
            message["topic"],
            message["queueId"],
            message["queueOffset"],
            message["physicalOffset"],
            keys,
            message.get("tags") or None,
            zlib.decompress(body) if message["sysFlag"] & 1 else body,
            message["flag"],
            message["sysFlag"],
            message["reconsumeTimes"],
            message["size"],
            keys and keys.split()[0].encode(),
        )
        expected.append(dict(zip(columns.split(","), values, strict=True)))
    by_position = [sorted(rows, key=lambda row: row["position"]) for rows in (found, expected)]
    assert by_position[0] == by_position[1]


def test_a_log_directory_of_kafka_is_read_and_streamed(spark, tmp_path):
    name = "none-0"
    unpack(name, tmp_path / "logs", KAFKA)
    frame = read(spark, tmp_path / "logs", subscribe="none", includeHeaders="true")
    found = sorted(dicts(frame), key=lambda row: row["offset"])
    with gzip.open(KAFKA / f"{name}.first50.jsonl.gz", "rt") as lines:
        for row, line in zip(found, lines, strict=False):
            known = json.loads(line)
            assert row["offset"] == known["offset"]
            assert (row["key"] or b"").hex() == (known["key"] or "")
            assert (row["value"] is None) == (known["value"] is None)
            headers = [[it["key"].encode().hex(), it["value"]] for it in row["headers"] or []]
            assert [name for name, _ in headers] == [name for name, _ in known["headers"]]
    stream = (
        spark.readStream.format("forebay")
        .option("subscribe", "none")
        .option("startingOffsets", "earliest")
        .load(str(tmp_path / "logs"))
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(found)
