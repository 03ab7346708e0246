"""Streams through Spark itself."""

import json
import threading
import time

import pytest
from harness import LONG_S
from pyspark.errors import StreamingQueryException
from sparks import send_one

import forebay
from forebay.spark import ForebayDataSource


@pytest.fixture
def stream(spark, tmp_path):
    """Return a function that starts a stream over `events`, with a checkpoint beside it."""
    spark.dataSource.register(ForebayDataSource)
    queries = []

    def start(sink, trigger=None, name="events", **options):
        reader = spark.readStream.format("forebay").options(**options)
        if not {"subscribePattern", "assign"} & options.keys():
            reader = reader.option("subscribe", "orders")
        writer = reader.load(str(tmp_path / name)).writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()


class Sink:
    """Keeps the rows of each batch by number, so that a repeated batch replaces itself."""

    def __init__(self):
        self.batches = {}

    def __call__(self, frame, number):
        self.batches[number] = [row.asDict(recursive=True) for row in frame.collect()]

    @property
    def rows(self):
        found = [row for _, rows in sorted(self.batches.items()) for row in rows]
        return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def send(store, numbers, topic="orders"):
    sent = [send_one(store, topic, number, queue=None) for number in numbers]
    store.flush()
    return sent


def kafka(sent):
    rows = [message.kafka() for message in sent]
    for row in rows:
        row["timestamp"] = row["timestamp"].replace(tzinfo=None)
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_available_messages_are_read_in_limited_batches_also_after_a_restart(stream, tmp_path):
    sink = Sink()
    begin = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100", "includeHeaders": "true"}
    with forebay.open(tmp_path / "events", default_queues=3) as store:
        sent = send(store, range(250))
        now = {"availableNow": True}
        query = stream(sink, now, **begin)
        assert query.awaitTermination(120)
        assert [len(rows) for _, rows in sorted(sink.batches.items())] == [100, 100, 50]
        assert sink.rows == kafka(sent)
        progress = json.loads(query.recentProgress[0].json)["sources"][0]
        lag = count_of(progress["latestOffset"]) - count_of(progress["endOffset"])
        assert (count_of(progress["latestOffset"]), lag) == (250, 150)
        sent += send(store, range(250, 300))
    # The store is closed; the stream restarts from its checkpoint.
    assert stream(sink, now, **begin).awaitTermination(120)
    assert sink.rows == kafka(sent)
    assert len(sink.batches) == 4


@pytest.mark.parametrize(
    ("limits", "counts"),
    [
        # Limits in bytes; all records have one size. An available-now stream never waits.
        ({"maxBytesPerTrigger": "{30}", "minOffsetsPerTrigger": "1000"}, [30, 30, 30, 10]),
        ({"maxBytesPerTrigger": "{30}", "maxOffsetsPerTrigger": "40"}, [30, 30, 30, 10]),
        ({"minOffsetsPerTrigger": "1000"}, [100]),
    ],
)
def test_limits_apply_to_available_now_streams(stream, tmp_path, limits, counts):
    sink = Sink()
    with forebay.open(tmp_path / "events", default_queues=2) as store:
        store.producer("orders").send_batch([b"0123456789"] * 100)
        store.flush()
        room = str(30 * store.message(0).size)
    limits = {name: value.replace("{30}", room) for name, value in limits.items()}
    query = stream(sink, {"availableNow": True}, startingOffsets="earliest", **limits)
    assert query.awaitTermination(120)
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == counts


def test_a_new_store_is_recorded_and_then_read(stream, tmp_path):
    sink = Sink()
    query = stream(sink, name="event*", includeHeaders="true")
    query.processAllAvailable()
    assert sink.rows == []
    with forebay.open(tmp_path / "events", default_queues=3) as store:
        sent = send(store, range(20))
        query.processAllAvailable()
    assert sink.rows == kafka(sent)


def count_of(offset):
    offset = json.loads(offset) if isinstance(offset, str) else offset
    (store,) = offset["stores"].values()
    return sum(sum(queues.values()) for queues in store["topics"].values())


def test_a_stream_follows_new_stores_topics_and_writers(stream, tmp_path):
    sink = Sink()
    with forebay.open(tmp_path / "events", default_queues=2) as store:
        send(store, range(10))
        query = stream(sink, subscribePattern="or.*", group="etl", columns=NAMES)
        query.processAllAvailable()
        assert sink.rows == []
        sent = send(store, range(10, 40))
        query.processAllAvailable()
        sent += send(store, range(40, 60), topic="orbits")
        query.processAllAvailable()
    with forebay.open(tmp_path / "events") as store:
        sent += send(store, range(60, 90))
        query.processAllAvailable()
        found = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in sink.rows]
        assert found == sorted((m.topic, m.queue, m.offset, m.body) for m in sent)
    query.stop()
    table = json.loads((tmp_path / "events" / "config" / "consumerOffset.json").read_text())
    assert sum(table["offsetTable"]["orders@etl"].values()) == 70
    assert sum(table["offsetTable"]["orbits@etl"].values()) == 20


NAMES = "topic,partition,offset,value"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be an integer from 1 to"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingOffsets": '{"orders":{"9":1}}'}, "must name every partition"),
    ],
)
def test_wrong_options_end_the_query_with_their_names(stream, tmp_path, options, reason):
    with forebay.open(tmp_path / "events") as store:
        send(store, range(3))
    with pytest.raises(StreamingQueryException) as caught:
        stream(Sink(), {"availableNow": True}, **options).awaitTermination(120)
    assert "InvalidOptionError" in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_retention_during_a_running_stream(stream, tmp_path, fail):
    """The sink holds a batch back until the messages of the next one are removed."""
    counts, removed = [], threading.Event()

    def sink(frame, number):
        counts.append(frame.count())
        assert removed.wait(120)

    small = {"commitlog_file_size": 1 << 16, "queue_file_entries": 64, "disk_reserve": 0}
    with forebay.open(tmp_path / "events", retention_bytes=1 << 17, **small) as store:
        producer = store.producer("orders", queue=0)
        producer.send_batch([b"first"] * 10)
        store.flush()
        query = stream(sink, startingOffsets="earliest", columns=NAMES, failOnDataLoss=fail)
        until(lambda: counts or query.exception())
        while store.topics["orders"].queues[0].min_offset <= 10:
            producer.send_batch([bytes(1000)] * 100)
            store.flush()
        removed.set()
        if fail == "true":
            with pytest.raises(StreamingQueryException, match=r"messages 10 to \d+ of"):
                query.awaitTermination(120)
            assert counts == [10]
            return
        query.processAllAvailable()
        query.stop()
        queue = store.topics["orders"].queues[0]
        assert counts[0] == 10
        # Messages that were removed while a batch was read are skipped too.
        assert sum(counts[1:]) >= queue.max_offset - queue.min_offset > 0


def until(holds):
    """Wait for another thread or process to act."""
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lost_data_ends_the_query_with_its_reason(stream, tmp_path):
    sink = Sink()
    path = tmp_path / "events"
    with forebay.open(path) as store:
        send(store, range(10))
    now = {"availableNow": True}
    assert stream(sink, now, startingOffsets="earliest", columns=NAMES).awaitTermination(120)
    path.rename(tmp_path / "gone")
    with forebay.open(path) as store:
        send(store, range(5))
    with pytest.raises(StreamingQueryException, match=r"LogShrunkError.*another one"):
        stream(sink, now, columns=NAMES).awaitTermination(120)
    last = stream(sink, now, columns=NAMES, failOnDataLoss="false")
    assert last.awaitTermination(120)
    assert len(sink.rows) == 15
