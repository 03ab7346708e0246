"""DataFrames written to stores, and read back."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from golden_stores import unpack
from harness import LONG_S
from owner import Owner
from pyspark.errors import PySparkException
from pyspark.sql import Row, types
from sparks import run_program

import forebay
import forebay.spark
from forebay.errors import InvalidOptionError
from forebay.spark.write import check_schema, parse_write_options, query_of

#: A task that fails twice before it succeeds, among tasks that do not fail.
RETRIES = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.master("local[2,4]").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
# Spark finds the format by itself.

def flaky(numbers):
    # Fails in the middle, after some rows were staged.
    context = TaskContext.get()
    for place, number in enumerate(numbers):
        if place == 300 and context.partitionId() == 1 and context.attemptNumber() < 2:
            raise RuntimeError("flaky")
        yield (str(number),)

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
numbers = spark.sparkContext.parallelize(range(2000), 4)
frame = spark.createDataFrame(numbers.mapPartitions(flaky), "value string")
frame.write.format("forebay").option("topic", "t").mode("append").save(sys.argv[1])

@udf("string", useArrow=False)
def flaky_value(number):
    context = TaskContext.get()
    if number > 1000 and context.partitionId() == 1 and context.attemptNumber() < 2:
        raise RuntimeError("flaky")
    return str(number)

rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2000)
frame = rate.option("numPartitions", 4).load().select(flaky_value("value").alias("value"))
writer = frame.writeStream.format("forebay").option("topic", "s")
writer = writer.option("checkpointLocation", sys.argv[1] + "-checkpoint")
writer.trigger(availableNow=True).start(sys.argv[1]).awaitTermination()
spark.stop()
"""


@pytest.fixture(scope="module", autouse=True)
def registered(spark):
    forebay.spark.register(spark)


def values(path, topic="t"):
    """Return how often each body occurs in a topic, and verify the store."""
    with forebay.open(path, mode="r") as store:
        assert store.verify().ok
        queues = store.topics[topic].queues if topic in store.topics else []
        found = [m.body for q in queues for m in messages(store, topic, q)]
    return Counter(found)


def messages(store, topic, queue):
    offset = queue.min_offset
    while offset < queue.max_offset:
        batch = store.read(topic, queue.id, offset, max_messages=1000)
        yield from batch
        offset = batch.next_offset


def test_written_rows_are_read_back(spark, tmp_path):
    at = datetime(2024, 5, 1, 12, 30, 0, 5000)
    schema = (
        "key binary, value binary, topic string, partition int, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp, tags string"
    )
    sent = []
    for number in range(600):
        headers = [(f"h{i}", b"%d" % i) for i in range(number % 3)] or None
        key = None if number % 4 == 0 else b"k%d" % (number % 50)
        topic, tag = f"t{number % 3}", None if number % 5 else "paid"
        born = at if number % 2 else None
        sent.append((key, b"%d" % number, topic, number % 2, headers, born, tag))
    frame = spark.createDataFrame(sent, schema).repartition(4)
    frame.write.format("forebay").mode("append").save(str(tmp_path / "new"))
    read = (
        spark.read.format("forebay")
        .option("subscribe", "t0,t1,t2")
        .option("columns", "key,value,topic,partition,headers,born_timestamp,tags")
        .load(str(tmp_path / "new"))
        .collect()
    )
    found = {row.value: row for row in read}
    assert len(found) == len(read) == 600
    for key, value, topic, partition, headers, born, tag in sent:
        row = found[value]
        wanted = None if headers is None else [Row(key=name, value=text) for name, text in headers]
        got = (row.key, row.topic, row.partition, row.headers, row.tags)
        assert got == (key, topic, partition, wanted, tag)
        assert born is None or row.born_timestamp == born
    assert values(tmp_path / "new", "t1")[b"1"] == 1


def test_the_option_topic_overrides_the_column(spark, tmp_path):
    frame = spark.createDataFrame([("a", "x"), ("b", None)], "value string, topic string")
    writer = frame.write.format("forebay").option("TOPIC", "t").option("committimeout", "5")
    writer.mode("append").save(str(tmp_path))
    assert values(tmp_path) == Counter([b"a", b"b"])
    assert values(tmp_path, "x") == Counter()


def test_a_frame_without_rows_creates_a_store(spark, tmp_path):
    frame = spark.createDataFrame([], "value string")
    frame.write.format("forebay").option("topic", "t").mode("append").save(str(tmp_path / "new"))
    assert values(tmp_path / "new") == Counter()


def test_a_refused_row_leaves_nothing(spark, tmp_path):
    # One task at a time: a task still running when the job fails leaves its stage to the sweep.
    frame = spark.range(0, 1000, 1, 1).selectExpr(
        "cast(id as string) as value", "if(id = 900, 'a||b', 'k') as tags"
    )
    with pytest.raises(PySparkException, match="row 900: tags is"):
        frame.write.format("forebay").option("topic", "t").mode("append").save(str(tmp_path))
    assert [found for _, _, files in os.walk(tmp_path) for found in files] == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("key string, topic string", "value is needed, of type"),
        ("value int, topic string", "its type is int"),
        ("value string", "option topic"),
        ("value string, topic binary", "its type is binary"),
        ("value string, topic string, partition bigint", "its type is bigint"),
        ("value string, topic string, offset bigint", "no such column"),
        ("value string, topic string, headers map<string, binary>", "its type is map"),
        ("value string, topic string, headers array<struct<key: string, v: binary>>", "array<"),
        ("value string, topic string, timestamp bigint", "its type is bigint"),
        ("value string, topic string, tags array<string>", "its type is array"),
    ],
)
def test_a_schema_with_other_columns_is_refused(schema, words):
    found = types.StructType.fromDDL(schema)
    with pytest.raises(InvalidOptionError, match=words):
        check_schema(found, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "p", "subscribe": "t"}, "the options are path, topic, commitTimeout"),
        ({"path": "p", "kafka.acks": "all"}, "Kafka client"),
        ({"path": "p", "commitTimeout": "soon"}, "seconds"),
        ({"path": "p", "commitTimeout": "0"}, "seconds"),
        ({"path": "p", "commitTimeout": "nan"}, "seconds"),
        ({"topic": "t"}, "directory of the store"),
        ({"path": "s3://bucket/p"}, "reaches as a local path"),
        ({"path": ":memory:"}, "reaches as a local path"),
    ],
)
def test_meaningless_options_are_refused(options, words):
    with pytest.raises(InvalidOptionError, match=words):
        parse_write_options(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"txnAppId": "a"}, "txnVersion is missing"),
        ({"txnVersion": "1"}, "txnAppId is missing"),
        ({"txnAppId": "", "txnVersion": "1"}, "at least one character"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "from 0 to"),
        ({"txnAppId": "a", "txnVersion": "9223372036854775808"}, "from 0 to"),
        ({"txnAppId": "a", "txnVersion": "one"}, "from 0 to"),
        ({"ignoreExtraColumns": "perhaps"}, '"true" or "false"'),
    ],
)
def test_options_that_contradict_one_another_are_refused(options, words):
    with pytest.raises(InvalidOptionError, match=words):
        parse_write_options({"path": "/p", **options})


def test_each_application_id_has_a_query_of_its_own():
    names = ["a", "A", "a b", "a:b", "\N{SNOWMAN}", "x" * 60, "x" * 61, "x" * 5000, "txn-a"]
    queries = [query_of(name) for name in names]
    assert len(set(queries)) == len(queries)
    assert queries[0] == "txn-a"
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", query) for query in queries)


def write_version(frame, path, app, version, **options):
    writer = frame.write.format("forebay").option("topic", "t").options(**options)
    writer = writer.option("txnAppId", app).option("txnVersion", version)
    writer.mode("append").save(str(path))


def test_a_version_of_an_application_is_written_once(spark, tmp_path):
    def frame(start, end):
        return spark.range(start, end, 1, 2).selectExpr("cast(id as string) as value")

    for _ in range(2):
        write_version(frame(0, 10), tmp_path, "an app: 1", 7)
        write_version(frame(10, 20), tmp_path, "other", 7)
    # As with Delta, the version decides: a lower one counts as done.
    write_version(frame(20, 30), tmp_path, "other", 7)
    write_version(frame(20, 30), tmp_path, "other", 6)
    assert values(tmp_path) == Counter(b"%d" % number for number in range(20))
    with pytest.raises(PySparkException, match="other rows"):
        write_version(frame(20, 30), tmp_path, "other", 7, batchConflict="fail")
    write_version(frame(10, 20), tmp_path, "other", 7, batchConflict="fail")
    write_version(frame(20, 30), tmp_path, "other", 8)
    assert values(tmp_path) == Counter(b"%d" % number for number in range(30))


def test_a_batch_that_is_run_again_writes_its_frames_once(spark, tmp_path):
    """The driver dies after the second write of a batch, before Spark records it as done."""
    runs = []
    again = threading.Event()

    def both(frame, number):
        runs.append(number)
        if len(runs) > 3:
            # What follows is another batch.
            again.set()
        values = frame.selectExpr("cast(value as string) as value").persist()
        write_version(values, tmp_path / "events", "copy-one", number)
        write_version(values, tmp_path / "events", "copy-two", number)
        if len(runs) == 2:
            raise RuntimeError("killed")

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    for _ in range(2):
        stream = rate.option("numPartitions", 2).load().writeStream.foreachBatch(both)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = stream.trigger(processingTime="0 seconds").start()
        if len(runs) < 2:
            with pytest.raises(PySparkException, match="killed"):
                query.awaitTermination()
        else:
            assert again.wait(LONG_S)
            query.stop()
    assert runs[:4] == [0, 1, 1, 2]
    found = values(tmp_path / "events")
    assert set(found.values()) == {2}
    assert {b"%d" % number for number in range(40)} <= set(found)


def test_a_stream_refuses_a_version(spark, tmp_path):
    rate = spark.readStream.format("rate").load().selectExpr("'a' as value")
    writer = rate.writeStream.format("forebay").option("topic", "t").option("txnAppId", "a")
    writer = writer.option("txnVersion", "1").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="only batch writes"):
        writer.start(str(tmp_path / "events")).awaitTermination()


def test_what_is_read_can_be_written_back(spark, tmp_path):
    schema = (
        "key string, value string, partition int, headers array<struct<key: string, value: binary>>"
    )
    sent = [("k", "a", 1, [("h", b"1")]), (None, "b", 0, None)]
    frame = spark.createDataFrame(sent, schema).write.format("forebay").option("topic", "t")
    frame.mode("append").save(str(tmp_path / "one"))
    reader = spark.read.format("forebay").option("subscribe", "t").option("includeHeaders", "true")
    read = reader.load(str(tmp_path / "one"))
    with pytest.raises(PySparkException, match="set ignoreExtraColumns"):
        read.write.format("forebay").mode("append").save(str(tmp_path / "two"))
    writer = read.write.format("forebay").option("ignoreExtraColumns", "true")
    writer.mode("append").save(str(tmp_path / "two"))
    born = "key,value,topic,partition,headers,born_timestamp"
    reader = spark.read.format("forebay").option("subscribe", "t")
    copied = reader.option("columns", born).load(str(tmp_path / "two"))
    wanted = read.select("key", "value", "topic", "partition", "headers", "timestamp")
    assert sorted(copied.collect(), key=str) == sorted(wanted.collect(), key=str)


def test_a_copy_of_a_kafka_topic_equals_the_original(spark, tmp_path):
    """A frame like the connector's, with values that a RocketMQ property cannot hold."""
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int, headers array<struct<key: string, value: binary>>"
    )
    at = datetime(2024, 5, 1, 12, 30, 0, 5000)
    keys = [b"k", b"\x00\xff", b"", b"a b", None]
    sent = [
        (key, value, "t", number % 2, number, at, 0, headers)
        for number, (key, value, headers) in enumerate(
            (key, value, headers)
            for key in keys
            for value in (b"v", b"", None)
            for headers in (None, [("h", b"\xff"), ("h", None), ("TAGS", b"")])
        )
    ]
    frame = spark.createDataFrame(sent, schema)
    writer = frame.write.format("forebay").option("ignoreExtraColumns", "true")
    writer.mode("append").save(str(tmp_path))
    reader = spark.read.format("forebay").option("subscribe", "t")
    names = "key,value,topic,partition,born_timestamp,headers"
    read = reader.option("columns", names).load(str(tmp_path))
    wanted = frame.select("key", "value", "topic", "partition", "timestamp", "headers")
    assert read.exceptAll(wanted).count() == wanted.exceptAll(read).count() == 0
    reader = reader.option("pushdown", "true")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for key in keys:
            wanted = [row[:2] for row in sent if row[0] == key]
            condition = "key is null" if key is None else f"key = X'{key.hex()}'"
            found = reader.load(str(tmp_path)).where(condition).select("key", "value").collect()
            assert Counter(map(tuple, found)) == Counter(wanted), key
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_partition_log_is_written_in_batches_and_streams(spark, tmp_path):
    """The columns and options are those of the Kafka connector's sink."""
    path = str(tmp_path / "log")
    schema = (
        "key binary, value binary, topic string, partition int, "
        "headers array<struct<key: string, value: binary>>"
    )
    sent = [
        (key, value, "orders.paid", partition, headers)
        for key, partition in ((b"k", None), (b"\x00\xff", 5), (None, 0))
        for value in (b"v", b"", None)
        for headers in (None, [("h", b"\xff"), ("h", None)])
    ]
    frame = spark.createDataFrame(sent, schema).repartition(2)
    writer = frame.write.format("forebay").option("engine", "partitionlog").mode("append")
    writer.save(path)
    with pytest.raises(PySparkException, match="is a partitionlog"):
        frame.write.format("forebay").option("engine", "commitlog").mode("append").save(path)
    assert Path(path, "orders.paid-5").is_dir()
    reader = spark.read.format("forebay").option("subscribe", "orders.paid")
    read = reader.option("includeHeaders", "true").load(path).collect()
    found = Counter((row.key, row.value, str(row.headers)) for row in read)
    assert found == Counter((row[0], row[1], str(as_rows(row[4]))) for row in sent)
    # A stream copies it to another topic. Run again from its checkpoint, it adds nothing.
    for _ in range(2):
        stream = spark.readStream.format("forebay").option("subscribe", "orders.paid")
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 7)
        copy = stream.load(path).select("key", "value").writeStream.format("forebay")
        copy = copy.option("topic", "copy").option("checkpointLocation", str(tmp_path / "check"))
        copy.trigger(availableNow=True).start(path).awaitTermination()
        assert values(path, "copy") == Counter(row[1] or b"" for row in sent)
    assert not [name for name in os.listdir(path) if name.startswith("forebay.stages")]


def as_rows(headers):
    return headers and [Row(key=name, value=value) for name, value in headers]


def test_a_misspelt_column_is_not_ignored():
    found = types.StructType.fromDDL("value string, Key string, other bigint")
    with pytest.raises(InvalidOptionError, match="column names are case-sensitive: use key"):
        check_schema(found, "t", ignore_extra=True)
    found = types.StructType.fromDDL("value string, key int, other bigint")
    with pytest.raises(InvalidOptionError, match="its type is int"):
        check_schema(found, "t", ignore_extra=True)


def test_options_that_spark_adds_to_a_stream_are_ignored():
    given = {"path": "/p", "checkpointlocation": "/c", "queryname": "q", "topic": "t"}
    assert parse_write_options(given).topic == "t"


def test_known_errors_are_raised_before_a_task_runs(spark, tmp_path):
    frame = spark.createDataFrame([("a",)], "value string").write.format("forebay")
    with pytest.raises(PySparkException, match="only be appended to"):
        frame.option("topic", "t").mode("overwrite").save(str(tmp_path / "a"))
    with pytest.raises(PySparkException, match="no/topic"):
        frame.option("topic", "no/topic").mode("append").save(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    foreign = unpack("clean", tmp_path / "rocketmq")
    with pytest.raises(PySparkException, match="adopt=True"):
        frame.option("topic", "t").mode("append").save(str(foreign))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(PySparkException, match="not a store"):
        frame.option("topic", "t").mode("append").save(str(tmp_path / "mine"))
    assert [found.name for found in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_store_that_the_driver_itself_has_open_is_written(spark, tmp_path):
    """The commit runs in a separate process, different from that of the driver's program."""
    with forebay.open(tmp_path, flush="sync") as store:
        frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
        frame.write.format("forebay").option("topic", "t").mode("append").save(str(tmp_path))
        assert sum(queue.max_offset for queue in store.topics["t"].queues) == 100
    assert values(tmp_path) == Counter(b"%d" % number for number in range(100))


def test_the_process_that_blocks_a_write_is_named(spark, tmp_path):
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) as value")
    writer = frame.write.format("forebay").option("topic", "t").option("commitTimeout", "0.3")
    with Owner(tmp_path / "events") as owner:
        owner.signal(signal.SIGSTOP)
        with pytest.raises(PySparkException, match=f"written by process {owner.pid}") as caught:
            writer.mode("append").save(str(tmp_path / "events"))
        assert "commitTimeout (0.3 s): the commit was withdrawn" in str(caught.value)
    assert values(tmp_path / "events") == Counter()


def test_a_task_that_is_repeated_counts_once(tmp_path):
    run_program(RETRIES, str(tmp_path / "events"))
    assert values(tmp_path / "events") == Counter(b"%d" % number for number in range(2000))
    assert values(tmp_path / "events", "s") == values(tmp_path / "events")
    # Failed attempts leave nothing, and a stream leaves only its folder.
    (left,) = (tmp_path / "events" / "forebay.stages").iterdir()
    assert list(left.iterdir()) == []
