"""What a read covers: its ranges, their division into tasks, and the batches of a task."""

import gzip
import json
import shutil
import subprocess
import sys
import time

import pyarrow
import pytest
from golden_stores import ROCKETMQ, unpack
from harness import LONG_S
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql.pandas.types import to_arrow_schema

import forebay
from forebay.errors import (
    CorruptError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    StoreNotFoundError,
    UnknownTopicError,
)
from forebay.spark.columns import schema_of
from forebay.spark.options import parse_options
from forebay.spark.plan import Planner
from forebay.spark.ranges import Range, cut
from forebay.spark.reader import ForebayPartition, ForebayReader
from forebay.spark.stores import OpenStores


def reader(path, parallelism=2, **options):
    return ForebayReader(parse_options({"path": str(path), **options}), parallelism)


def ranges(path, **options):
    """Return the bounds of each queue in a read."""
    planner = Planner(parse_options({"path": str(path), **options}))
    with forebay.open(path, mode="r") as store:
        found = planner.ranges(store)
    planner.check()
    return {(r.topic, r.queue): (r.start, r.end) for r in found}


def rows(path, **options):
    """Return all rows of a read, in the order of its tasks."""
    reading = reader(path, **options)
    batches = [b for part in reading.partitions() for b in reading.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


lengths = some.lists(some.tuples(some.integers(0, 9), some.integers(0, 40)), max_size=8)


@given(lengths, some.integers(1, 9), some.none() | some.integers(1, 20))
def test_a_cut_covers_every_message_once_in_groups_of_similar_size(found, parts, most):
    whole = [Range("s", "t", queue, first, first + n) for queue, (first, n) in enumerate(found)]
    total = sum(map(len, whole))
    groups = cut(whole, parts, most)
    messages = [
        (r.queue, offset) for group in groups for r in group for offset in range(r.start, r.end)
    ]
    assert messages == [(r.queue, offset) for r in whole for offset in range(r.start, r.end)]
    sizes = [sum(map(len, group)) for group in groups]
    assert all(min(map(len, group)) > 0 for group in groups)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(groups) >= min(parts, total)
    if most is None:
        assert len(groups) == min(parts, total)
    else:
        assert max(sizes, default=0) <= most


def test_one_queue_is_cut_for_every_core(events):
    parts = reader(events.path, parallelism=4, subscribe="one").partitions()
    assert [[(r.start, r.end) for r in part.ranges] for part in parts] == [
        [(0, 20)],
        [(20, 40)],
        [(40, 60)],
        [(60, 80)],
    ]
    parts = reader(events.path, parallelism=4, subscribe="one", minPartitions="3").partitions()
    assert [len(part.ranges[0]) for part in parts] == [27, 26, 27]
    limited = {"subscribe": "one", "maxRecordsPerPartition": "15"}
    assert len(reader(events.path, **limited).partitions()) == 6


def test_topics_are_named_by_list_by_pattern_and_by_queue(events):
    both = ranges(events.path, subscribe="one,bills")
    assert next(iter(both)) == ("one", 0)
    assert set(both) == {("one", 0), ("bills", 0), ("bills", 1), ("bills", 2)}
    assert ranges(events.path, subscribePattern="o.e") == {("one", 0): (0, 80)}
    assert {topic for topic, _ in ranges(events.path, subscribePattern="o.*")} == {"one", "orders"}
    # Like the connector's, a pattern matches anywhere in a name.
    assert {topic for topic, _ in ranges(events.path, subscribePattern="r")} == {"orders"}
    assert ranges(events.path, subscribePattern="^n") == {}
    assert set(ranges(events.path, assign='{"bills":[2],"one":[0]}')) == {("bills", 2), ("one", 0)}


def test_a_pattern_skips_system_topics_and_a_name_does_not(tmp_path):
    path = unpack("broker", tmp_path)
    named = {topic for topic, _ in ranges(path, subscribePattern=".*")}
    assert {"fx-orders", "%DLQ%fx-group"} <= named
    assert not [name for name in named if name.startswith(("RMQ_SYS", "SCHEDULE"))]
    assert ranges(path, subscribe="SCHEDULE_TOPIC_XXXX")


def test_a_named_topic_or_queue_that_does_not_exist_is_an_error(events, tmp_path):
    with pytest.raises(UnknownTopicError, match="no topic 'nothing'"):
        ranges(events.path, subscribe="one,nothing")
    with pytest.raises(UnknownTopicError, match="no queue 7"):
        ranges(events.path, assign='{"one":[0,7]}')
    with pytest.raises(StoreNotFoundError):
        reader(tmp_path / "nowhere", subscribe="one").partitions()


def test_named_offsets_are_used_as_given(events):
    one = {"subscribe": "one"}
    found = ranges(
        events.path, startingOffsets='{"one":{"0":5}}', endingOffsets='{"one":{"0":9}}', **one
    )
    assert found == {("one", 0): (5, 9)}
    found = ranges(
        events.path, startingOffsets='{"one":{"0":-2}}', endingOffsets='{"one":{"0":-1}}', **one
    )
    assert found == {("one", 0): (0, 80)}
    assert ranges(events.path, startingOffsets="earliest", endingOffsets="latest", **one) == found


def test_offsets_name_every_queue_or_none(events):
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(InvalidOptionError, match="bills-0, bills-1, bills-2"):
            ranges(events.path, subscribe="bills", **{option: '{"bills":{"0":0,"1":0}}'})
    times = '{"one":{"0":0,"1":0}}'
    with pytest.raises(InvalidOptionError, match="must name every partition"):
        ranges(events.path, subscribe="one", startingOffsetsByTimestamp=times)


def test_missing_offsets_fail_unless_loss_is_allowed(events):
    for option, text in (
        ("startingOffsets", '{"one":{"0":81}}'),
        ("endingOffsets", '{"one":{"0":100}}'),
    ):
        with pytest.raises(OffsetOutOfRangeError, match="its bounds are 0 to 80") as caught:
            ranges(events.path, subscribe="one", **{option: text})
        assert (caught.value.queue, caught.value.max_offset) == (0, 80)
        found = ranges(events.path, subscribe="one", failOnDataLoss="false", **{option: text})
        assert found == {("one", 0): (80 if option == "startingOffsets" else 0, 80)}


def test_times_mean_the_first_message_stored_then_or_later(tmp_path):
    with forebay.open(tmp_path / "timed", commitlog_file_size=1 << 20) as store:
        store.create_topic("t", queues=2)
        results = [store.send("t", b"%d" % number, queue=0) for number in range(3)]
        # Store times have millisecond steps: send until the clock has advanced.
        while results[-1].timestamp < results[0].timestamp + 2:
            results.append(store.send("t", b"more", queue=0))
        last = results[-1]
        count = len(results)
    path = tmp_path / "timed"
    only = {"assign": '{"t":[0]}'}
    first = next(r.offset for r in results if r.timestamp >= last.timestamp)
    at, behind = str(last.timestamp), str(last.timestamp + 1)
    assert ranges(path, startingTimestamp=at, **only) == {("t", 0): (first, count)}
    assert ranges(path, endingTimestamp=at, **only) == {("t", 0): (0, first)}
    assert ranges(path, endingTimestamp=behind, **only) == {("t", 0): (0, count)}
    by_queue = json.dumps({"t": {"0": last.timestamp}})
    assert ranges(path, startingOffsetsByTimestamp=by_queue, **only) == {("t", 0): (first, count)}
    assert ranges(path, endingOffsetsByTimestamp=by_queue, **only) == {("t", 0): (0, first)}
    with pytest.raises(InvalidOptionError, match="t-0 has no message stored at or after"):
        ranges(path, startingTimestamp=behind, **only)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(path, startingTimestamp=behind, **only, **latest) == {("t", 0): (count, count)}
    # An empty queue has no message at or after any time.
    with pytest.raises(InvalidOptionError, match="t-1 has no message"):
        ranges(path, startingTimestamp="0", subscribe="t")


def test_a_read_that_ends_before_its_start_is_refused(events):
    with pytest.raises(InvalidOptionError, match="before its start"):
        ranges(
            events.path,
            subscribe="one",
            startingOffsets='{"one":{"0":9}}',
            endingTimestamp="17",
        )


def test_batches_have_exactly_the_types_that_spark_takes(events):
    from forebay.spark.columns import _TYPES

    columns = tuple(_TYPES)
    reading = reader(events.path, subscribe="orders", columns=",".join(columns))
    expected = to_arrow_schema(schema_of(columns), timezone="UTC")
    batches = [batch for part in reading.partitions() for batch in reading.read(part)]
    assert sum(batch.num_rows for batch in batches) == 80
    for batch in batches:
        assert isinstance(batch, pyarrow.RecordBatch)
        batch.validate(full=True)
        assert expected.equals(batch.schema)


def test_rows_hold_what_was_sent(events):
    columns = "key,value,topic,partition,offset,timestamp,timestampType,headers"
    found = rows(events.path, subscribe="orders,one", columns=columns)
    assert found == [sent.kafka() for sent in events.of("orders", "one")]
    expected = [sent.own() for sent in events.of("bills")]
    found = rows(events.path, subscribe="bills", columns=",".join(expected[0]))
    assert found == expected


def of_queue(topic, queue, start=0, end=2**62):
    return lambda sent: (sent.topic, sent.queue) == (topic, queue) and start <= sent.offset < end


def meant(middle):
    """Return options, and the messages that they select; `middle` is a time."""
    one, bills = {"subscribe": "one"}, {"assign": '{"bills":[0]}'}
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    lost = {"failOnDataLoss": "false"}
    by_topic = lambda *names: lambda sent: sent.topic in names  # noqa: E731
    before = lambda sent: sent.topic == "one" and sent.timestamp < middle  # noqa: E731
    after = lambda sent: sent.topic == "one" and sent.timestamp >= middle  # noqa: E731
    by_queue = json.dumps({"one": {"0": middle}})
    return [
        ({"subscribe": "orders, one"}, by_topic("orders", "one")),
        ({"subscribePattern": "^o|ill"}, by_topic("orders", "one", "bills")),
        (
            {"assign": '{"orders":[0,2],"one":[0]}'},
            lambda s: by_topic("orders", "one")(s) and (s.topic, s.queue) != ("orders", 1),
        ),
        (one | {"startingOffsets": "earliest", "endingOffsets": "latest"}, by_topic("one")),
        (one | {"startingOffsets": '{"one":{"0":7}}'}, of_queue("one", 0, 7)),
        (
            one | {"startingOffsets": '{"one":{"0":-2}}', "endingOffsets": '{"one":{"0":11}}'},
            of_queue("one", 0, 0, 11),
        ),
        (
            bills | {"startingOffsets": '{"bills":{"0":7}}', "endingOffsets": '{"bills":{"0":-1}}'},
            of_queue("bills", 0, 7),
        ),
        (one | latest | {"startingTimestamp": str(middle)}, after),
        (one | {"endingTimestamp": str(middle)}, before),
        (one | latest | {"startingOffsetsByTimestamp": by_queue}, after),
        (one | {"endingOffsetsByTimestamp": by_queue}, before),
        (one | latest | {"startingTimestamp": str(middle + 10**6)}, lambda sent: False),
        (one | {"endingTimestamp": str(middle + 10**6)}, by_topic("one")),
        (one | {"minPartitions": "7", "maxRecordsPerPartition": "5"}, by_topic("one")),
        (one | lost | {"endingOffsets": '{"one":{"0":1000}}'}, by_topic("one")),
        (one | lost | {"startingOffsets": '{"one":{"0":1000}}'}, lambda sent: False),
    ]


@pytest.mark.parametrize("number", range(16))
def test_options_select_the_expected_rows(events, number):
    """Compare with the sent messages kept in memory, with and without headers."""
    middle = events.of("one")[40].timestamp
    options, means = meant(middle)[number]
    wanted = [sent.kafka() for sent in events.of("orders", "bills", "one") if means(sent)]
    order = ["orders", "bills", "one"]

    def ordered(found):
        return sorted(found, key=lambda r: (order.index(r["topic"]), r["partition"], r["offset"]))

    assert ordered(rows(events.path, includeHeaders="true", **options)) == wanted
    without = [{name: row[name] for name in row if name != "headers"} for row in wanted]
    assert ordered(rows(events.path, **options)) == without


def test_all_cases_of_options_are_tested():
    assert len(meant(0)) == 16


@pytest.mark.parametrize("name", ["big", "clean", "crashed", "lost-queues", "undispatched"])
def test_a_directory_that_rocketmq_left_is_read_whole(tmp_path, name):
    path = unpack(name, tmp_path)
    with gzip.open(ROCKETMQ / f"{name}.jsonl.gz") as listing:
        messages = [message for message in map(json.loads, listing) if message["inQueue"]]
    topics = ",".join(sorted({message["topic"] for message in messages}))
    found = rows(path, subscribe=topics, columns="topic,partition,offset,position,size")
    assert sorted(tuple(row.values()) for row in found) == sorted(
        (m["topic"], m["queueId"], m["queueOffset"], m["physicalOffset"], m["size"])
        for m in messages
    )


def settle(store):
    """Let other processes see all sent messages: reading the topics updates their queues."""
    assert store.topics


def test_a_read_is_a_snapshot_and_the_next_one_is_not(tmp_path):
    with forebay.open(tmp_path / "live", commitlog_file_size=1 << 20) as store:
        producer = store.producer("t", queue=0)
        producer.send_batch([b"a", b"b"])
        settle(store)
        reading = reader(tmp_path / "live", subscribe="t", columns="value")
        parts = reading.partitions()
        producer.send_batch([b"c", b"d"])
        settle(store)
        found = [row["value"] for p in parts for b in reading.read(p) for row in b.to_pylist()]
        assert found == [b"a", b"b"]
        assert len(rows(tmp_path / "live", subscribe="t")) == 4


def test_a_topic_created_after_planning_is_read_by_the_next_plan(tmp_path):
    with forebay.open(tmp_path / "live", commitlog_file_size=1 << 20) as store:
        store.send("a", b"1")
        settle(store)
        pattern = {"subscribePattern": ".*", "columns": "topic"}
        assert rows(tmp_path / "live", **pattern) == [{"topic": "a"}]
        store.send("b", b"2")
        settle(store)
        assert rows(tmp_path / "live", **pattern) == [{"topic": "a"}, {"topic": "b"}]


def test_a_worker_keeps_its_store_for_the_tasks_of_one_stage(tmp_path):
    path = tmp_path / "replaced"

    def fill(body):
        with forebay.open(path, commitlog_file_size=1 << 20) as store:
            store.send("t", body)

    fill(b"old")
    opened = OpenStores()
    first = opened.store("read", str(path), ("plan", 1))
    assert opened.store("read", str(path), ("plan", 1)) is first
    shutil.rmtree(path)
    fill(b"new")
    second = opened.store("read", str(path), ("plan", 2))
    assert first.closed
    assert [m.body for m in second.tail("t", start="earliest", follow=False)] == [b"new"]
    fill(b"newer")
    other = opened.store("read", str(path), None)
    assert second.closed
    last = opened.store("read", str(path), None)
    assert last is not other
    assert other.closed
    last.close()


def test_offsets_that_vanish_after_planning_fail_or_are_skipped(events, caplog):
    gone = [Range(events.path, "one", 0, 70, 90)]
    strict = reader(events.path, subscribe="one", columns="offset")
    with pytest.raises(CorruptError, match=r"10 messages of one-0 \[70, 90\)"):
        list(strict.read(ForebayPartition("p", gone)))
    lenient = reader(events.path, subscribe="one", columns="offset", failOnDataLoss="false")
    batches = list(lenient.read(ForebayPartition("p", gone)))
    assert sum(batch.num_rows for batch in batches) == 10
    gone = [Range(events.path, "one", 0, 85, 90)]
    with pytest.raises(OffsetOutOfRangeError):
        list(strict.read(ForebayPartition("p", gone)))
    assert list(lenient.read(ForebayPartition("p", gone))) == []
    assert "5 messages of one-0" in caplog.text


@pytest.mark.parametrize("fail", ["true", "false"])
def test_messages_that_retention_removes_during_a_task(tmp_path, caplog, fail):
    """A batch holds less than half of the messages when the others are removed."""
    small = {"commitlog_file_size": 1 << 20, "queue_file_entries": 500, "disk_reserve": 0}
    body = bytes(10_000)
    with forebay.open(tmp_path / "live", **small) as store:
        store.producer("t", queue=0).send_batch([body] * 1000)
        end = store.flush()
    reading = reader(tmp_path / "live", 1, subscribe="t", columns="value", failOnDataLoss=fail)
    (part,) = reading.partitions()
    with forebay.open(tmp_path / "live", retention_bytes=1, **small) as store:
        batches = reading.read(part)
        found = [next(batches)]
        assert found[0].num_rows < 500
        deadline = time.monotonic() + LONG_S
        # The queue's bound moves first, then the files go.
        log = tmp_path / "live" / "commitlog"
        while min(int(file.name) for file in log.iterdir()) < end:
            assert time.monotonic() < deadline
            store.producer("t", queue=0).send_batch([body] * 100)
        if fail == "true":
            taken = (
                r"messages of t-0 \[0, 1000\) in .* are lost to retention: t-0 now begins at \d+"
            )
            with pytest.raises(CorruptError, match=taken):
                list(batches)
            return
        found += batches
    values = [value for batch in found for value in batch.column(0).to_pylist()]
    # Rows that arrived are intact, and missing ones are reported.
    assert len(values) < 1000 and set(values) == {body}
    assert f"{1000 - len(values)} messages of t-0" in caplog.text
    assert "lost to retention" in caplog.text


def test_messages_lost_to_damage_fail_the_read_unless_loss_is_allowed(tmp_path, caplog):
    """Four messages are in a hole; the listing from before the damage has all others."""
    path = unpack("torn-hole", tmp_path)
    with pytest.raises(CorruptError, match="lost to damage") as caught:
        rows(path, subscribePattern=".*")
    assert "failOnDataLoss" in str(caught.value)
    columns = "topic,queue,offset,position"
    found = rows(path, subscribePattern=".*", columns=columns, failOnDataLoss="false")
    found = {tuple(row.values()) for row in found}
    assert "lost to damage" in caplog.text
    expected = set()
    with gzip.open(ROCKETMQ / "crashed.jsonl.gz") as listing:
        for line in listing:
            row = json.loads(line)
            if row["inQueue"] and row["topic"] != "SCHEDULE_TOPIC_XXXX":
                place = (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"])
                expected.add(place)
    lost = {1_867_720, 1_868_148, 1_870_842, 1_871_122}
    assert found == {place for place in expected if place[3] not in lost}


WRITER = """
import sys
import forebay
with forebay.open(sys.argv[1], commitlog_file_size=1 << 20) as store:
    producer = store.producer("t", queue=0)
    number = 0
    for line in sys.stdin:
        for _ in range(1000):
            producer.send(b"%d" % number)
            number += 1
        assert store.topics
        print(number, flush=True)
"""


class Writer:
    """Another process that holds a store open for writing, and sends on command."""

    def __init__(self, path):
        arguments = [sys.executable, "-c", WRITER, str(path)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True)

    def send(self):
        self.process.stdin.write("more\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.communicate()


def test_a_store_is_followed_while_another_process_writes_and_after_it_died(tmp_path):
    writer = Writer(tmp_path / "live")
    try:
        assert writer.send() == 1000
        reading = reader(tmp_path / "live", subscribe="t", columns="offset,value")
        parts = reading.partitions()
        assert writer.send() == 2000
        found = [row for part in parts for b in reading.read(part) for row in b.to_pylist()]
        assert found == [{"offset": n, "value": b"%d" % n} for n in range(1000)]
        assert len(rows(tmp_path / "live", subscribe="t")) == 2000
    finally:
        writer.kill()
    assert len(rows(tmp_path / "live", subscribe="t")) == 2000
