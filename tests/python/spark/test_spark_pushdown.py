"""Filters taken over from Spark: the rows are the same, but less is read for them."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from golden_stores import ROCKETMQ, unpack
from hypothesis import given, settings
from hypothesis import strategies as some
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import forebay
from forebay.errors import CorruptError
from forebay.spark import filters
from forebay.spark.options import parse_options
from forebay.spark.reader import PushdownReader

COLUMNS = "store,key,topic,partition,offset,timestamp,tags,keys,queue,store_timestamp"
#: The configuration that makes Spark push filters down.
CONF = "spark.sql.python.filterPushdown.enabled"

KEYS = [[], ["a"], ["a", "b"], ["b"], ["b", "a"], ["c", "c"], ["\N{SNOWMAN}", "a"]]
TAGS = [None, "red", "green", "blue"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with two stores, filled slowly enough that store times differ."""
    folder = tmp_path_factory.mktemp("pushdown")
    for name in ("one", "two"):
        with forebay.open(folder / name, commitlog_file_size=1 << 20) as store:
            for topic in ("x", "y"):
                store.create_topic(topic, queues=3)
            number = 0
            times: set[int] = set()
            while number < 300 or len(times) < 8:
                sent = store.send(
                    "xy"[number % 5 == 0],
                    b"%d" % number,
                    keys=KEYS[number % len(KEYS)],
                    tags=TAGS[number // 2 % len(TAGS)],
                    queue=number // 3 % 3,
                )
                times.add(sent.timestamp)
                number += 1
    return folder


def reader(folder, pushed, **options) -> tuple[PushdownReader, list[Filter]]:
    options = {"path": str(folder / "*"), "subscribe": "x,y", "columns": COLUMNS, **options}
    reading = PushdownReader(parse_options(options), 1)
    return reading, list(reading.pushFilters(pushed))


def planned(reading) -> list[tuple[str, str, int, int, int]]:
    """Return what the tasks of a reader will read: store, topic, queue and bounds."""
    return [
        (Path(r.store).name, r.topic, r.queue, r.start, r.end)
        for part in reading.partitions()
        for r in part.ranges
    ]


def read(reading) -> list[dict]:
    return [
        row
        for part in reading.partitions()
        for batch in reading.read(part)
        for row in batch.to_pylist()
    ]


def sorted_rows(rows) -> list[dict]:
    return sorted(rows, key=lambda r: (r["store"], r["topic"], r["partition"], r["offset"]))


@pytest.fixture(scope="module")
def everything(folder) -> list[dict]:
    return sorted_rows(read(reader(folder, [])[0]))


def passes(one, row) -> bool | None:
    """Evaluate a filter as SQL does; `None` means unknown."""
    if isinstance(one, Not):
        inner = passes(one.child, row)
        return None if inner is None else not inner
    value = row[one.attribute[0]]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe):
        return value == one.value
    if value is None:
        return None
    if isinstance(one, In):
        return True if value in one.value else None if None in one.value else False
    return {
        EqualTo: lambda: value == one.value,
        GreaterThan: lambda: value > one.value,
        GreaterThanOrEqual: lambda: value >= one.value,
        LessThan: lambda: value < one.value,
        LessThanOrEqual: lambda: value <= one.value,
        StringStartsWith: lambda: value.startswith(one.value),
        StringEndsWith: lambda: value.endswith(one.value),
        StringContains: lambda: one.value in value,
    }[type(one)]()


def same_rows(folder, everything, pushed) -> bool:
    """Return whether Spark gets the same final rows, given the filters left to it."""
    reading, left = reader(folder, pushed)
    assert all(any(one is given for given in pushed) for one in left)
    found = [row for row in read(reading) if all(passes(one, row) is True for one in left)]
    wanted = [row for row in everything if all(passes(one, row) is True for one in pushed)]
    return sorted_rows(found) == wanted


def filters_on(everything):
    """Return a strategy for filters, most of them with values that occur."""

    def of(column):
        values = sorted({row[column] for row in everything if row[column] is not None})
        near = {
            int: lambda value: value + 1,
            str: lambda value: value + "z",
            bytes: lambda value: value + b"\xff",
            datetime: lambda value: value + timedelta(microseconds=1),
        }[type(values[0])]
        value = some.sampled_from([*values, *map(near, values)])
        kinds = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
        if isinstance(values[0], str):
            kinds += [StringStartsWith, StringEndsWith, StringContains]
        plain = some.builds(lambda kind, v: kind((column,), v), some.sampled_from(kinds), value)
        several = some.lists(value | some.none(), min_size=1, max_size=5).map(
            lambda found: In((column,), found)
        )
        nulls = some.sampled_from([IsNull((column,)), IsNotNull((column,))])
        return plain | several | nulls | (plain | several).map(Not)

    return some.lists(some.sampled_from(COLUMNS.split(",")).flatmap(of), min_size=1, max_size=3)


def test_pushed_and_remaining_filters_give_the_same_rows(folder, everything):
    @settings(max_examples=40, deadline=None)
    @given(filters_on(everything))
    def check(pushed):
        assert same_rows(folder, everything, pushed)

    check()


def whole(everything) -> dict[tuple[str, str, int], int]:
    """Return the number of messages of each queue."""
    counts: dict[tuple[str, str, int], int] = {}
    for row in everything:
        at = (Path(row["store"]).name, row["topic"], row["partition"])
        counts[at] = counts.get(at, 0) + 1
    return counts


def merged(found) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Join the pieces of each queue, which must be adjacent."""
    joined: dict[tuple[str, str, int], tuple[int, int]] = {}
    for store, topic, queue, start, end in found:
        first, last = joined.get((store, topic, queue), (start, start))
        assert last == start
        joined[store, topic, queue] = (first, end)
    return joined


def test_ranges_are_narrowed_to_rows_that_may_match(folder, everything):
    counts = whole(everything)
    row = everything[len(everything) // 2]
    time = row["timestamp"]
    above = time + timedelta(microseconds=500)

    def taken(*pushed):
        reading, left = reader(folder, pushed)
        return merged(planned(reading)), left

    def by_time(start, end):
        """Return, by queue, the offsets whose times are within the half-open bounds."""
        bounds = {}
        for at in counts:
            offsets = [
                r["offset"]
                for r in everything
                if (Path(r["store"]).name, r["topic"], r["partition"]) == at
                and (start is None or r["timestamp"] >= start)
                and (end is None or r["timestamp"] < end)
            ]
            if offsets:
                bounds[at] = (offsets[0], offsets[-1] + 1)
        return bounds

    everywhere = {at: (0, count) for at, count in counts.items()}
    assert taken() == (everywhere, [])
    only = {at: bounds for at, bounds in everywhere.items() if at[0] == "two"}
    assert taken(EqualTo(("store",), str(folder / "two"))) == (only, [])
    only = {at: bounds for at, bounds in everywhere.items() if at[1] == "y" and at[2] in (0, 2)}
    pushed = (GreaterThan(("topic",), "x"), In(("partition",), [0, 2, 7]), IsNotNull(("topic",)))
    assert taken(*pushed) == (only, [])
    pushed = (GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9))
    assert taken(*pushed) == (dict.fromkeys(counts, (5, 9)), [])
    pushed = (GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9))
    assert taken(*pushed) == (dict.fromkeys(counts, (6, 10)), [])
    listed = In(("offset",), [8, 3])
    assert taken(listed) == (dict.fromkeys(counts, (3, 9)), [listed])
    step = timedelta(milliseconds=1)
    assert taken(EqualTo(("timestamp",), time)) == (by_time(time, time + step), [])
    assert taken(EqualTo(("timestamp",), above)) == ({}, [])
    assert taken(GreaterThan(("timestamp",), time)) == (by_time(time + step, None), [])
    assert taken(GreaterThan(("timestamp",), above)) == (by_time(time + step, None), [])
    assert taken(GreaterThanOrEqual(("timestamp",), time)) == (by_time(time, None), [])
    assert taken(LessThan(("timestamp",), time)) == (by_time(None, time), [])
    assert taken(LessThan(("timestamp",), above)) == (by_time(None, time + step), [])
    assert taken(LessThanOrEqual(("timestamp",), time)) == (by_time(None, time + step), [])
    assert taken(LessThan(("store_timestamp",), time)) == (by_time(None, time), [])
    far = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    assert taken(GreaterThan(("timestamp",), far[0]), LessThan(("timestamp",), far[1])) == (
        everywhere,
        [],
    )


@pytest.mark.parametrize("side", ["start", "end"])
def test_a_bound_that_is_wrong_by_one_is_noticed(folder, everything, monkeypatch, side):
    """Shows that the comparisons above can fail: a planted mistake must fail them."""
    narrow = filters.Pushed.narrow

    def wrong(self, store, ranges):
        step = {"start": 1, "end": -1}[side]
        found = [replace(one, **{side: getattr(one, side) + step}) for one in ranges]
        return narrow(self, store, found)

    pushed = [GreaterThanOrEqual(("offset",), 0)]
    assert same_rows(folder, everything, pushed)
    monkeypatch.setattr(filters.Pushed, "narrow", wrong)
    assert not same_rows(folder, everything, pushed)


def test_the_key_is_the_first_one_and_is_returned_once(folder, everything):
    """Messages have several keys, and the index finds a message by each."""
    for values in ([b"a"], [b"a", b"b"], [b"b"], [b"c"], ["\N{SNOWMAN}".encode()], [b"none"]):
        listed = In(("key",), values)
        reading, left = reader(folder, [listed])
        assert left == [listed]
        found = sorted_rows(read(reading))
        assert found == [row for row in everything if row["key"] in values]


def test_rows_of_a_key_are_within_the_bounds_of_the_read(folder, everything):
    options = {"startingOffsets": json.dumps({t: dict.fromkeys("012", 4) for t in "xy"})}
    pushed = [EqualTo(("key",), b"a"), LessThan(("offset",), 15), EqualTo(("tags",), "red")]
    reading, left = reader(folder, pushed, **options)
    assert left == [pushed[0], pushed[2]]
    assert sorted_rows(read(reading)) == [
        row
        for row in everything
        if row["key"] == b"a" and 4 <= row["offset"] < 15 and row["tags"] == "red"
    ]


def flip(sent, path):
    """Flip a bit in the body of a message."""
    with open(path / "commitlog" / f"{0:020}", "r+b") as log:
        log.seek(sent.position + 120)
        byte = log.read(1)[0]
        log.seek(sent.position + 120)
        log.write(bytes([byte ^ 1]))


def test_a_key_is_read_through_the_index_and_not_by_walking_the_log(tmp_path, caplog):
    """Damage outside the read is not reported; damage inside it is not silently skipped."""
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        sent = [store.send("t", b"x" * 200, key=f"k{n % 10}", queue=0) for n in range(100)]
    options = {"path": str(path), "subscribe": "t", "columns": "offset"}
    pushed = [EqualTo(("key",), b"k3")]
    flip(sent[55], path)
    offsets = [row["offset"] for row in read(reader(tmp_path, pushed, **options)[0])]
    assert offsets == list(range(3, 100, 10))
    with pytest.raises(CorruptError, match="1 messages"):
        read(reader(tmp_path, [], **options)[0])
    flip(sent[33], path)
    with pytest.raises(CorruptError, match="t-0") as caught:
        read(reader(tmp_path, pushed, **options)[0])
    assert str(path) in str(caught.value)
    lenient = options | {"failOnDataLoss": "false"}
    offsets = [row["offset"] for row in read(reader(tmp_path, pushed, **lenient)[0])]
    assert offsets == [n for n in range(3, 100, 10) if n != 33]
    assert str(path) in caplog.text


def test_a_tag_that_is_lost_to_damage_fails_the_read(tmp_path):
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        sent = [store.send("t", b"x" * 200, tags="ab"[n % 2], queue=0) for n in range(20)]
    flip(sent[5], path)
    options = {"path": str(path), "subscribe": "t", "columns": "offset"}
    found = read(reader(tmp_path, [EqualTo(("tags",), "a")], **options)[0])
    assert [row["offset"] for row in found] == list(range(0, 20, 2))
    with pytest.raises(CorruptError, match="1 messages"):
        read(reader(tmp_path, [EqualTo(("tags",), "b")], **options)[0])


def test_keys_are_found_where_no_index_was_built(tmp_path):
    """Live and closed stores, from the first message on and after an earlier writer's index."""
    options = {"subscribe": "t", "columns": "offset"}

    def found(name):
        reading = reader(tmp_path, [EqualTo(("key",), b"k")], path=str(tmp_path / name), **options)
        return sorted(row["offset"] for row in read(reading[0]))

    number = 0
    for name, openings in {"never": [False], "later": [True, False, True]}.items():
        number = 0
        for index in openings:
            with forebay.open(tmp_path / name, index=index, commitlog_file_size=1 << 20) as store:
                for _ in range(50):
                    store.send("t", b"x", key="k" if number % 2 else "other", queue=0)
                    number += 1
                assert store.topics
                assert found(name) == list(range(1, number, 2))
            assert found(name) == list(range(1, number, 2))


@pytest.mark.parametrize(
    ("name", "lacking"),
    [("broker", None), ("broker", "index"), ("crashed", "consumequeue"), ("lost-queues", None)],
)
def test_a_brokers_directory_gives_the_same_rows_with_filters(tmp_path, name, lacking):
    """Some are intact; some lack their index or queues, one of them after a crash."""
    path = unpack(name, tmp_path)
    if lacking is not None:
        shutil.rmtree(path / lacking)
    with gzip.open(ROCKETMQ / f"{name}.jsonl.gz") as listing:
        messages = [message for message in map(json.loads, listing) if message["inQueue"]]
    topics = sorted({message["topic"] for message in messages})
    options = {"path": str(path), "subscribe": ",".join(topics)}
    rows = read(reader(tmp_path, [], **options)[0])
    # A delayed message is stored twice, with another tag code in the delay queue.
    assert "SCHEDULE_TOPIC_XXXX" in topics
    random = Random(7)
    for column, kind in (
        ("key", EqualTo),
        ("keys", EqualTo),
        ("tags", EqualTo),
        ("timestamp", EqualTo),
        ("timestamp", LessThan),
    ):
        values = sorted({row[column] for row in rows if row[column] is not None})
        one = kind((column,), random.choice(values[len(values) // 4 :]))
        reading, left = reader(tmp_path, [one], **options)
        found = [row for row in read(reading) if all(passes(f, row) is True for f in left)]
        wanted = [row for row in rows if passes(one, row) is True]
        assert sorted_rows(found) == sorted_rows(wanted)
        assert wanted


def load(spark, folder, *, pushdown):
    options = {"subscribe": "x,y", "columns": COLUMNS, "pushdown": str(pushdown)}
    return spark.read.format("forebay").options(**options).load(str(folder / "*"))


@pytest.fixture
def enabled(spark):
    spark.conf.set(CONF, "true")
    yield spark
    spark.conf.unset(CONF)


def conditions(everything):
    """Return SQL conditions: some for each rule, and random conjunctions of these."""
    row = everything[len(everything) // 3]
    time = row["timestamp"].strftime("%Y-%m-%d %H:%M:%S.%f")
    single = [
        "topic in ('x', 'z') and partition <> 1",
        "partition <=> 2 and not (queue in (0, 1))",
        "offset between 3 and 11.5",
        "offset in (3, 5, null)",
        f"timestamp >= '{time}'",
        f"store_timestamp < timestamp'{time}' + interval 500 microseconds",
        "key in (X'61', X'62')",
        "key = cast('c' as binary) or key is null",
        "keys = 'a b'",
        "tags in ('red', 'blue')",
        "tags <> 'red'",
        "store like '%two'",
        "topic like 'y%' and key is not null and tags > 'blue'",
    ]
    random = Random(20)
    several = [random.sample(single, 3) for _ in range(3)]
    return [*single, *(" and ".join(f"({one})" for one in some) for some in several)]


def test_spark_gives_the_same_rows_with_and_without_pushdown(enabled, folder, everything):
    every = conditions(everything)
    plain = load(enabled, folder, pushdown=False)
    told = plain.selectExpr("*", *(f"({one}) as c{n}" for n, one in enumerate(every)))
    told_rows = told.toArrow().to_pylist()
    assert len(told_rows) == len(everything)
    for number, condition in enumerate(every):
        wanted = [
            {name: row[name] for name in COLUMNS.split(",")}
            for row in told_rows
            if row[f"c{number}"] is True
        ]
        # Loaded again each time, for the reason that the last test shows.
        found = load(enabled, folder, pushdown=True).filter(condition).toArrow().to_pylist()
        assert sorted_rows(found) == sorted_rows(wanted), condition


def test_exactly_pushed_filters_are_not_evaluated_again(enabled, folder, everything):
    frame = load(enabled, folder, pushdown=True).filter("topic = 'x' and partition = 1")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    wanted = sum(row["topic"] == "x" and row["partition"] == 1 for row in everything)
    assert frame.count() == wanted > 0
    frame = load(enabled, folder, pushdown=True).filter("tags = 'red'")
    assert "Filter (" in frame._jdf.queryExecution().executedPlan().toString()


def test_pushdown_needs_sparks_own_configuration(spark, folder):
    with pytest.raises(PySparkException, match="filterPushdown"):
        load(spark, folder, pushdown=True).filter("topic = 'x'").count()
    assert load(spark, folder, pushdown=False).filter("topic = 'nowhere'").count() == 0


@pytest.mark.xfail(strict=True, reason="Spark plans all scans of a frame by the last filters")
def test_a_frame_may_be_read_with_other_filters(enabled, folder, everything):
    """A bug of Spark 4.2 and 4.3, described in the docs: if this passes, change the docs.

    Spark keeps the plan of a Python source with the loaded frame instead of with the scan.
    """
    frame = load(enabled, folder, pushdown=True)
    assert frame.filter("topic = 'x'").count() < len(everything)
    assert frame.count() == len(everything)
