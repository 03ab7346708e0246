"""Several stores as one DataFrame: finding and dividing them, and failures of one."""

import os
import shutil
from pathlib import Path

import pytest
import store_files
from hypothesis import given
from hypothesis import strategies as some
from pyspark.errors import PySparkException

import forebay
from forebay.errors import (
    CorruptError,
    InvalidOptionError,
    StoreNotFoundError,
    UnknownTopicError,
)
from forebay.spark.options import parse_options
from forebay.spark.plan import weigh
from forebay.spark.ranges import Range, cut
from forebay.spark.reader import ForebayReader
from forebay.spark.stores import expand


def fill(path, count, *, topic="t", queues=2, size=10):
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        store.create_topic(topic, queues=queues)
        return [
            store.send(topic, b"%0*d" % (size, number), queue=number % queues)
            for number in range(count)
        ]


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """Return a folder of five stores with ten messages each, named by numbers."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(5):
        fill(folder / str(number) / "events", 10)
    return folder


def reader(paths, parallelism=2, **options):
    given = {"subscribe": "t", "columns": "store,partition,offset", **options}
    names = {"paths": paths} if paths.startswith("[") else {"path": paths}
    return ForebayReader(parse_options(names | given), parallelism)


def rows(reading):
    parts = reading.partitions()
    return [row for part in parts for batch in reading.read(part) for row in batch.to_pylist()]


def stores_of(found):
    return sorted({Path(row["store"]).parent.name for row in found})


def test_a_pattern_expands_to_the_directories_that_it_matches(shards, tmp_path):
    every = [str(shards / str(number) / "events") for number in range(5)]
    assert expand([str(shards / "*" / "events")]) == every
    assert expand([str(shards / "[13]" / "events")]) == [every[1], every[3]]
    # A store named in two ways is read once, under the first name.
    (tmp_path / "link").symlink_to(every[2])
    assert expand([str(tmp_path / "link"), every[2], every[0]]) == [
        str(tmp_path / "link"),
        every[0],
    ]
    (shards / "1" / "eventually").write_text("a file")
    assert expand([str(shards / "1" / "event*")]) == [every[1]]
    literal = tmp_path / "what[1]*"
    literal.mkdir()
    (tmp_path / "what1").mkdir()
    assert expand([str(literal)]) == [str(literal)]
    with pytest.raises(StoreNotFoundError, match=r"matches the pattern .*/nothing\*/events"):
        expand([str(shards / "nothing*" / "events")])


def test_paths_are_absolute_and_listed_once():
    found = parse_options({"paths": '["b", "a", "./b", "file:///c"]', "subscribe": "t"})
    assert found.paths == (os.path.abspath("b"), os.path.abspath("a"), "/c")


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ("[]", "name at least one store"),
        ("[1]", "expected e.g."),
        ('{"a":1}', "expected e.g."),
        ("a,b", "expected e.g."),
        ('["hdfs:events"]', "every worker reaches"),
        ('[""]', "must be the directory"),
    ],
)
def test_an_invalid_list_of_paths_is_refused(paths, reason):
    with pytest.raises(InvalidOptionError, match=reason) as caught:
        parse_options({"paths": paths, "subscribe": "t"})
    assert caught.value.name == "paths"


pieces = some.lists(
    some.tuples(some.integers(0, 40), some.integers(1, 9) | some.integers(100, 2000)), max_size=8
)


@given(pieces, some.integers(1, 9), some.none() | some.integers(1, 20))
def test_a_cut_gives_every_task_the_same_bytes_up_to_one_record(found, parts, most):
    whole = [
        Range(f"s{n % 3}", "t", n, 5, 5 + count, size) for n, (count, size) in enumerate(found)
    ]
    groups = cut(whole, parts, most)
    assert [(r.queue, o) for group in groups for r in group for o in range(r.start, r.end)] == [
        (r.queue, o) for r in whole for o in range(r.start, r.end)
    ]
    assert all(len(r) for group in groups for r in group)
    total = sum(len(r) * r.record_bytes for r in whole)
    largest = max((r.record_bytes for r in whole if len(r)), default=0)
    for group in groups:
        # Each end of a part is at most half a record from its ideal position.
        assert sum(len(r) * r.record_bytes for r in group) <= total / parts + largest
        assert most is None or sum(map(len, group)) <= most


def test_stores_are_weighed_by_the_sizes_of_their_records(tmp_path):
    small = fill(tmp_path / "small", 900)
    fill(tmp_path / "large", 100, size=10_000)
    parts = reader(str(tmp_path / "*"), parallelism=4).partitions()
    counts = [sum(map(len, part.ranges)) for part in parts]
    assert sum(counts) == 1000
    # The large ones come first; each of four tasks gets about a quarter of the bytes.
    assert [count for count in counts[:3] if 20 <= count <= 35] == counts[:3]
    sizes = {r.store: r.record_bytes for part in parts for r in part.ranges}
    assert 10_000 < sizes[str(tmp_path / "large")] < 10_300
    with forebay.open(tmp_path / "small", mode="r") as store:
        exact = store.get("t", 0, small[0].offset).size
    assert sizes[str(tmp_path / "small")] == exact


def test_queues_that_are_not_sampled_get_the_average_of_their_topic(tmp_path, monkeypatch):
    with forebay.open(tmp_path / "s", commitlog_file_size=1 << 20) as store:
        ranges = []
        for topic, size in (("x", 100), ("y", 3000)):
            store.create_topic(topic, queues=3)
            for queue in range(3):
                for _ in range(queue + 1):
                    store.send(topic, b"x" * size, queue=queue)
                ranges.append(Range(store.path, topic, queue, 0, queue + 1))
        exact = {topic: store.get(topic, 0, 0).size for topic in "xy"}
        monkeypatch.setattr("forebay.spark.plan._SAMPLES_MAX", 2)
        found = weigh(store, ranges)
    assert [r.record_bytes for r in found] == [exact[r.topic] for r in ranges]


def test_one_queue_of_one_topic_of_one_store_occupies_every_core(tmp_path):
    fill(tmp_path / "s", 80, queues=1)
    parts = reader(str(tmp_path / "s"), parallelism=4).partitions()
    assert [sum(map(len, part.ranges)) for part in parts] == [20, 20, 20, 20]


def bounds(reading):
    found = {}
    for part in reading.partitions():
        for r in part.ranges:
            key = (Path(r.store).parent.name, r.queue)
            found[key] = (min(found.get(key, (r.start,))[0], r.start), r.end)
    return found


def test_offsets_apply_to_every_store_or_are_given_for_each(shards, monkeypatch):
    several = str(shards / "[01]" / "events")
    found = bounds(reader(several, startingOffsets='{"t":{"0":2,"1":-2}}'))
    assert found == {("0", 0): (2, 5), ("0", 1): (0, 5), ("1", 0): (2, 5), ("1", 1): (0, 5)}
    first, second = (str(shards / name / "events") for name in "01")
    by_store = f'{{"{first}":{{"t":{{"0":1,"1":2}}}},"1/events":{{"t":{{"0":3,"1":-2}}}}}}'
    monkeypatch.chdir(shards)
    found = bounds(reader(several, startingOffsets=by_store, endingOffsets='{"t":{"0":4,"1":-1}}'))
    assert found == {("0", 0): (1, 4), ("0", 1): (2, 5), ("1", 0): (3, 4), ("1", 1): (0, 5)}
    times = by_store.replace(":-2", ":0")
    assert len(bounds(reader(several, startingOffsetsByTimestamp=times))) == 4
    for text, reason in (
        (f'{{"{first}":{{"t":{{"0":1,"1":2}}}}}}', f"{second} is missing"),
        (by_store.replace("1/events", "2/events"), "is missing"),
        (by_store[:-1] + ',"elsewhere":{}}', "must name only stores that are read"),
        (by_store.replace('"1":2', '"2":2'), "must name every partition"),
        ('{"t":{"0":1,"1":2,"2":3}}', "must name every partition"),
        ('{"t":{"0":1}}', "must name every partition"),
        (f'{{"{first}":{{"t":{{"0":1}}}},"t":3}}', "expected e.g."),
    ):
        with pytest.raises(InvalidOptionError, match=reason):
            reader(several, startingOffsets=text).partitions()
    with pytest.raises(InvalidOptionError, match="startingOffsetsByTimestamp"):
        reader(several, startingOffsetsByTimestamp=f'{{"{first}":{{"t":{{"0":1}}}}}}').partitions()
    ends = by_store.replace('"0":3', '"0":2').replace(":-2", ":-1")
    with pytest.raises(InvalidOptionError, match="before the start 3 of t-0"):
        reader(several, startingOffsets=by_store, endingOffsets=ends)


def test_a_topic_must_be_in_at_least_one_store(shards, tmp_path):
    fill(tmp_path / "x" / "events", 4, topic="rare", queues=1)
    both = f'["{shards}/0/events", "{tmp_path}/x/events"]'
    found = rows(reader(both, subscribe="t,rare"))
    assert (len(found), stores_of(found)) == (14, ["0", "x"])
    assert len(rows(reader(both, subscribe="rare"))) == 4
    offsets = '{"t":{"0":4,"1":4},"rare":{"0":1}}'
    assert len(rows(reader(both, subscribe="t,rare", startingOffsets=offsets))) == 5
    with pytest.raises(UnknownTopicError, match=r"no topic 'nothing' in any of 2 stores"):
        reader(both, subscribe="t,nothing").partitions()
    options = parse_options({"paths": both, "assign": '{"t":[0],"rare":[0,1]}'})
    with pytest.raises(UnknownTopicError, match="'rare' has no queue 1"):
        ForebayReader(options, 1).partitions()


def damage(shards, tmp_path, how):
    """Copy five stores, and damage the fourth."""
    folder = tmp_path / how
    store_files.copy(shards, folder)
    broken = folder / "3" / "events"
    if how == "no store":
        shutil.rmtree(broken)
        broken.mkdir()
    else:
        with open(broken / "commitlog" / f"{0:020}", "r+b") as log:
            at = log.read(4096).index(b"0000000004")
            log.seek(at)
            log.write(b"!")
    return folder


def test_one_damaged_store_of_five_fails_the_read_or_is_skipped(shards, tmp_path, caplog):
    folder = damage(shards, tmp_path, "no store")
    broken = str(folder / "3" / "events")
    strict = reader(str(folder / "*" / "events"))
    with pytest.raises(StoreNotFoundError) as caught:
        strict.partitions()
    assert broken in str(caught.value)
    assert any(broken in note and "failOnDataLoss" in note for note in caught.value.__notes__)
    # The named offsets and topics may be those of the unreadable store.
    options = {"failOnDataLoss": "false", "startingOffsets": '{"t":{"0":1,"1":1,"2":1}}'}
    found = rows(reader(str(folder / "*" / "events"), **options))
    assert (len(found), stores_of(found)) == (32, ["0", "1", "2", "4"])
    assert broken in caplog.text
    # If nothing can be read, the option does not produce an empty frame.
    with pytest.raises(StoreNotFoundError):
        reader(broken, failOnDataLoss="false").partitions()


def test_a_store_that_lost_a_message_returns_the_others(shards, tmp_path, caplog):
    folder = damage(shards, tmp_path, "flipped")
    broken = str(folder / "3" / "events")
    with pytest.raises(CorruptError, match="1 messages of t-0") as caught:
        rows(reader(str(folder / "*" / "events")))
    assert broken in str(caught.value)
    found = rows(reader(str(folder / "*" / "events"), failOnDataLoss="false"))
    lost = {"store": broken, "partition": 0, "offset": 2}
    assert len(found) == 49
    assert lost not in found
    assert broken in caplog.text


def test_a_store_that_vanishes_after_planning_fails_or_is_skipped(shards, tmp_path, caplog):
    store_files.copy(shards, tmp_path / "s")
    readers = [
        reader(str(tmp_path / "s" / "[12]" / "events"), failOnDataLoss=fail)
        for fail in ("true", "false")
    ]
    planned = [reading.partitions() for reading in readers]
    shutil.rmtree(tmp_path / "s" / "2")
    with pytest.raises(StoreNotFoundError, match="2/events"):
        [list(readers[0].read(part)) for part in planned[0]]
    found = [b for part in planned[1] for b in readers[1].read(part)]
    assert sum(batch.num_rows for batch in found) == 10
    assert "2/events" in caplog.text


def load(spark, paths, **options):
    options = {"subscribe": "t"} | options
    return spark.read.format("forebay").options(**options).load(paths)


def test_spark_loads_lists_and_patterns(spark, shards):
    every = [str(shards / str(number) / "events") for number in range(5)]
    frame = load(spark, every[:2])
    assert (frame.count(), frame.columns[0]) == (20, "key")
    assert "store" not in frame.columns
    frame = load(spark, [str(shards / "[34]" / "events"), every[0]], columns="value,store")
    found = {row.store: row["count"] for row in frame.groupBy("store").count().collect()}
    assert found == dict.fromkeys([every[0], *every[3:]], 10)
    only = load(spark, str(shards / "*" / "events"), columns="store")
    assert only.distinct().count() == 5
    both = spark.read.format("forebay").options(subscribe="t", path=every[0])
    assert both.load().count() == 10


def test_spark_names_the_store_that_is_damaged(spark, shards, tmp_path):
    folder = damage(shards, tmp_path, "flipped")
    pattern = str(folder / "*" / "events")
    with pytest.raises(PySparkException) as caught:
        load(spark, pattern).collect()
    assert str(folder / "3" / "events") in str(caught.value)
    assert load(spark, pattern, failOnDataLoss="false").count() == 49
    folder = damage(shards, tmp_path, "no store")
    with pytest.raises(PySparkException) as caught:
        load(spark, str(folder / "*" / "events")).collect()
    assert str(folder / "3" / "events") in str(caught.value)


def unsupported(path):
    """Make a store whose folder of log files is a file."""
    fill(path, 1)
    shutil.rmtree(path / "commitlog")
    (path / "commitlog").write_text("no directory")


def test_spark_says_why_a_store_is_not_supported(spark, tmp_path):
    """PySpark took the error for a reader without partitions, and a task failed with no cause."""
    unsupported(tmp_path / "odd")
    loaded = spark.read.format("forebay").option("subscribe", "t").load(str(tmp_path / "odd"))
    with pytest.raises(PySparkException, match="commitlog") as caught:
        loaded.collect()
    assert "AssertionError" not in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


def test_a_refused_plan_is_no_not_implemented_error(tmp_path):
    unsupported(tmp_path / "odd")
    with pytest.raises(forebay.ForebayError, match="commitlog") as caught:
        reader(str(tmp_path / "odd")).partitions()
    assert not isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value.__cause__, forebay.UnsupportedError)
    assert "failOnDataLoss" in caught.value.__notes__[0]


def test_a_thousand_topics_are_listed_and_read(spark, tmp_path):
    options = {"subscribePattern": "topic-...", "columns": "topic,value"}
    reader = spark.read.format("forebay").options(**options)
    with forebay.open(tmp_path / "wide", commitlog_file_size=1 << 20, default_queues=1) as store:
        for number in range(1000):
            store.producer(f"topic-{number:03}").send_batch([b"a", b"b"])
        store.flush()
        frame = reader.load(str(tmp_path / "wide"))
        assert frame.rdd.getNumPartitions() <= 2 * spark.sparkContext.defaultParallelism
        counts = frame.groupBy("topic").count().toArrow().to_pylist()
    assert {row["topic"]: row["count"] for row in counts} == {
        f"topic-{number:03}": 2 for number in range(1000)
    }
