"""Conversion of a store to the files of another engine."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden_stores import DIGESTS, unpack_partitions
from harness import LONG_S
from kafka_batches import write

import forebay
from forebay import _forebay
from forebay.dead_letters import Redriver, dead_topic, origin

#: Folders whose offsets have gaps: control records, compaction.
GAPS = ("txn-0", "compacted-0", "compactedlz4-0")
DENSE = tuple(name for name in DIGESTS if name not in GAPS)
OFFSET = "FOREBAY_OFFSET"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes a log directory of golden partitions."""

    def make(*names: str) -> Path:
        return unpack_partitions(tmp_path_factory.mktemp("kafka") / "logs", names)

    return make


def rows(store: forebay.Store, topic: str) -> list[tuple[Any, ...]]:
    """Return what a conversion keeps of each message, offsets first."""
    own = [OFFSET, "FOREBAY_STORE_TIME"]
    # In Spark's dialect headers are decoded.
    given = {"topic": topic, "dialect": "spark", "columns": ["queue", "offset", "headers"]}
    table = pa.RecordBatchReader.from_stream(_forebay.scan_again(store, given)).read_all()
    headers = {
        (queue, offset): [(it["key"], it["value"]) for it in found or () if it["key"] not in own]
        for queue, offset, found in zip(*(it.to_pylist() for it in table.columns), strict=True)
    }
    return sorted(
        (
            it.queue,
            it.offset,
            it.born_timestamp,
            it.key_bytes,
            None if it.is_null else it.body,
            it.tags,
            headers[it.queue, it.offset],
        )
        for it in store.tail(topic, start="earliest", follow=False)
    )


def without_offsets(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(queue, *rest) for queue, _, *rest in found]


def test_a_log_directory_of_kafka_becomes_a_commit_log(golden, tmp_path):
    source, target = golden(*DENSE), tmp_path / "events"
    seen: list[tuple[int, int]] = []
    done = forebay.convert(source, target, engine="commitlog", progress=lambda *it: seen.append(it))
    total = sum(DIGESTS[name]["records"] for name in DENSE)
    assert (done.messages, done.resumed, done.damaged, done.left_out) == (total, False, 0, {})
    assert done.topics == {name.removesuffix("-0"): name.removesuffix("-0") for name in DENSE}
    assert seen[-1] == (total, total)
    with forebay.open(source, mode="r") as old, forebay.open(target) as new:
        assert new.engine == "commitlog"
        for topic in old.topics:
            expected = rows(old, topic)
            assert rows(new, topic) == expected
            found = list(new.tail(topic, start="earliest", follow=False))
            times = [it.store_timestamp for it in found]
            assert times == sorted(times)
            assert all(it.store_timestamp >= it.born_timestamp for it in found)
        assert new.verify().ok
        assert new.send("gzip", b"more").offset >= 0
    assert [it.name for it in tmp_path.iterdir()] == ["events"]


@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_refused_or_renumbered(golden, tmp_path, name):
    source, target = golden(name), tmp_path / "events"
    topic = name.removesuffix("-0")
    with pytest.raises(forebay.InvalidOptionError, match=f"of {topic} has no message at") as caught:
        forebay.convert(source, target, engine="commitlog")
    gap = caught.value
    assert (gap.name, gap.topic, gap.queue) == ("renumber", topic, 0)
    assert gap.reason.startswith(f"queue 0 of {topic} has no message at offset {gap.offset}, ")
    assert list(tmp_path.iterdir()) == []
    done = forebay.convert(source, target, engine="commitlog", renumber=True)
    with (
        forebay.open(source, mode="r", isolation="read_committed") as old,
        forebay.open(target, mode="r") as new,
    ):
        expected = rows(old, topic)
        assert done.messages == len(expected)
        assert without_offsets(rows(new, topic)) == without_offsets(expected)
        found = list(new.tail(topic, start="earliest", follow=False))
        assert [it.offset for it in found] == list(range(len(expected)))
        assert [int(it.properties[OFFSET]) for it in found] == [it[1] for it in expected]


def test_what_came_from_kafka_goes_back_as_it_was(golden, tmp_path):
    source, between, target = golden(*DENSE), tmp_path / "events", tmp_path / "log"
    forebay.convert(source, between, engine="commitlog")
    total = sum(DIGESTS[name]["records"] for name in DENSE)
    done = forebay.convert(between, target, engine="partitionlog", compression="lz4")
    assert (done.messages, done.resumed, done.damaged) == (total, False, 0)
    with forebay.open(source, mode="r") as old, forebay.open(target, mode="r") as new:
        assert new.engine == "partitionlog"
        for topic in old.topics:
            assert rows(new, topic) == rows(old, topic)
        assert new.verify().ok


def test_a_commit_log_becomes_a_partition_log(tmp_path):
    source, target = tmp_path / "events", tmp_path / "log"
    born = datetime(2024, 5, 6, tzinfo=UTC)
    with forebay.open(source, default_queues=2) as store:
        for number in range(50):
            store.send(
                "orders|new",
                b"body %d" % number * number,
                keys=[f"k{number % 7}", "second", "third"],
                tags="paid",
                properties={"region": "eu", "empty-ish": " "},
                timestamp=born + timedelta(seconds=number),
            )
        store.send("plain", b"")
        with store.consumer("plain", group="g", start="earliest") as consumer:
            consumer.reject(consumer.poll(timeout=5)[0], reason="why")
    done = forebay.convert(source, target, engine="partitionlog", compression="zstd")
    names = {"%DLQ%g": "dlq.g", "orders|new": "orders_new", "plain": "plain"}
    assert done.topics == names and done.messages == 52
    with forebay.open(source, mode="r") as old, forebay.open(target) as new:
        for before, after in names.items():
            assert rows(new, after) == rows(old, before)
            assert [q.id for q in new.topics[after].queues] == [
                q.id for q in old.topics[before].queues
            ]
            for it in old.tail(before, start="earliest", follow=False):
                copy = new.get(after, it.queue, it.offset)
                assert copy.keys == it.keys
                assert (
                    copy.properties
                    == it.properties | {"FOREBAY_STORE_TIME": str(it.store_timestamp)}
                    or it.store_timestamp == it.born_timestamp
                )
                assert copy.reconsume_times == it.reconsume_times
        assert new.verify().ok
        assert new.send("plain", b"more").offset >= 0
    back = forebay.convert(target, tmp_path / "back", engine="commitlog")
    assert back.topics["dlq.g"] == "%DLQ%g"
    with forebay.open(source, mode="r") as old, forebay.open(tmp_path / "back") as new:
        for first, last in {"%DLQ%g": "%DLQ%g", "orders|new": "orders_new"}.items():
            assert rows(new, last) == rows(old, first)
            pairs = zip(
                old.tail(first, start="earliest", follow=False),
                new.tail(last, start="earliest", follow=False),
                strict=True,
            )
            assert all(a.store_timestamp == b.store_timestamp for a, b in pairs)


def test_a_commit_log_that_does_not_begin_at_offset_0_is_refused_or_renumbered(tmp_path):
    source, target = tmp_path / "events", tmp_path / "log"
    small = {"commitlog_file_size": 16384, "default_queues": 1, "flush_interval": 0.01}
    with forebay.open(source, retention_bytes=1, **small) as store:
        for number in range(30):
            store.send("t", b"%04d" % number * 500)
        deadline = time.monotonic() + LONG_S
        while not store.topics["t"].queues[0].min_offset:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        first = store.topics["t"].queues[0].min_offset
    with pytest.raises(forebay.InvalidOptionError, match="offset 0"):
        forebay.convert(source, target, engine="partitionlog")
    forebay.convert(source, target, engine="partitionlog", renumber=True)
    with forebay.open(target, mode="r") as store:
        found = list(store.tail("t", start="earliest", follow=False))
        assert [it.offset for it in found] == list(range(len(found)))
        old = [int(it.properties[OFFSET]) for it in found]
        assert old == list(range(first, 30))
        assert [it.body for it in found] == [b"%04d" % number * 500 for number in old]


def test_uncommitted_messages_are_converted_if_asked_for(golden, tmp_path):
    source = golden("txn-0")
    done = forebay.convert(
        source, tmp_path / "a", engine="commitlog", renumber=True, isolation="read_uncommitted"
    )
    assert done.messages == DIGESTS["txn-0"]["records"]


def test_store_times_follow_the_messages_of_all_queues(tmp_path):
    for queue in range(3):
        times = [1_700_000_000_000 + 10 * n + queue for n in range(50)]
        batches = [[(time, None, b"%d" % time, [])] for time in times]
        write(tmp_path / "logs" / f"a.b-{queue}", batches)
    # Times of a queue that fall cannot all be kept by a log whose times never do.
    write(
        tmp_path / "logs" / "late-0",
        [[(1_700_000_000_400, None, b"x", []), (1_600_000_000_000, None, b"y", [])]],
    )
    done = forebay.convert(tmp_path / "logs", tmp_path / "events", engine="commitlog")
    assert done.topics == {"a.b": "a_b", "late": "late"}
    with forebay.open(tmp_path / "events") as store:
        found = list(store.tail("a_b", start="earliest", follow=False))
        assert len(store.topics["a_b"].queues) == 3
        assert [it.store_timestamp for it in found] == sorted(int(it.body) for it in found)
        assert store.offset_at("a_b", 1, 1_700_000_000_101) == 10
        first, second = store.tail("late", start="earliest", follow=False)
        assert first.store_timestamp == second.store_timestamp == 1_700_000_000_400
        assert second.born_timestamp == 1_600_000_000_000


def test_a_time_in_the_future_is_no_store_time(tmp_path):
    """One such message gave its time to every later one, and to all that were sent afterwards."""
    past, now = 1_700_000_000_000, time.time_ns() // 1_000_000
    future = now + 10_000_000_000
    times = {
        "t-0": [past + 100, future, past + 300],
        "t-1": [past + 200, past + 400],
        "first-0": [future, future + 1, past + 250],
        "only-0": [future],
        # More than are read at a time.
        "many-0": [*[future] * 600, past + 350],
    }
    for folder, of_queue in times.items():
        write(tmp_path / "logs" / folder, [[(it, None, b"x", [])] for it in of_queue])
    forebay.convert(tmp_path / "logs", tmp_path / "events", engine="commitlog")
    with forebay.open(tmp_path / "events") as store:
        found = {
            (topic, queue.id): [
                store.get(topic, queue.id, offset) for offset in range(queue.max_offset)
            ]
            for topic in store.topics
            for queue in store.topics[topic].queues
        }
        born = {
            f"{topic}-{queue}": [it.born_timestamp for it in of_queue]
            for (topic, queue), of_queue in found.items()
        }
        assert born == times
        stored = {
            f"{topic}-{queue}": [it.store_timestamp - past for it in of_queue]
            for (topic, queue), of_queue in found.items()
        }
        assert stored.pop("only-0") >= [now - past]
        assert stored.pop("many-0") == [350] * 601
        assert stored == {"t-0": [100, 100, 300], "t-1": [200, 400], "first-0": [250, 250, 250]}
        sent = store.send("t", b"more")
        assert store.get("t", sent.queue, sent.offset).store_timestamp < future
        assert store.verify().ok


@pytest.mark.parametrize(
    ("first", "other"), [("commitlog", "partitionlog"), ("partitionlog", "commitlog")]
)
def test_dead_letters_keep_what_they_say(tmp_path, first, other):
    """A commit log got the reason in base64, where nobody looked for it."""
    with forebay.open(tmp_path / "0", engine=first) as store:
        store.send("orders", b"x", properties={"region": "eu"})
        with store.consumer("orders", group="g", start="earliest") as consumer:
            consumer.reject(consumer.poll(timeout=LONG_S)[0], reason="no such order")
    forebay.convert(tmp_path / "0", tmp_path / "1", engine=other)
    forebay.convert(tmp_path / "1", tmp_path / "2", engine=first)
    for number in range(3):
        with forebay.open(tmp_path / str(number), mode="r") as store:
            [letter] = store.read(dead_topic(store, "g"), 0, 0)
            assert origin(letter) == {
                "original_topic": "orders",
                "attempts": 1,
                "reason": "no such order",
            }
            assert letter.properties["region"] == "eu"


def test_topics_that_messages_name_are_named_as_in_the_target(tmp_path):
    """A dead letter could not be sent again: no commit log has a topic of the name that it had."""
    named = [("FOREBAY_RETRY_TOPIC", b"a.b"), ("FOREBAY_REAL_TOPIC", b"retry.g")]
    write(tmp_path / "logs" / "a.b-0", [[(1_700_000_000_000, None, b"x", [])]])
    write(tmp_path / "logs" / "dlq.g-0", [[(1_700_000_000_001, None, b"x", named)]])
    names = {"a.b": "orders"}
    forebay.convert(tmp_path / "logs", tmp_path / "events", engine="commitlog", names=names)
    forebay.convert(tmp_path / "events", tmp_path / "back", engine="partitionlog")

    def named_in(store):
        system = store.get(dead_topic(store, "g"), 0, 0).system_properties
        return system["RETRY_TOPIC"], system["REAL_TOPIC"]

    with forebay.open(tmp_path / "events") as store:
        assert named_in(store) == ("orders", "%RETRY%g")
        Redriver(store, "g").redrive(None, lambda *_: None)
        assert store.topics["orders"].queues[0].max_offset == 2
    with forebay.open(tmp_path / "back") as store:
        assert named_in(store) == ("orders", "retry.g")


def test_dead_letters_of_newer_brokers_keep_their_original_topic(tmp_path):
    """They name it in another property, which a conversion to a partition log dropped."""
    source = tmp_path / "events"
    topic = "orders|new"
    options = {"default_queues": 1, "commitlog_file_size": 1 << 20, "checksum": False}
    with forebay.open(source, **options) as store:
        store.send(topic, b"x")
        said = {"dlq_ORIGIN_TOPIC": topic, "dlq_ORIGIN_MESSAGE_ID": "0A"}
        store.send("%DLQ%g", b"x", properties=said)
    # No sender can set the properties of a broker.
    log = source / "commitlog" / f"{0:020}"
    log.write_bytes(log.read_bytes().replace(b"dlq_ORIGIN", b"DLQ_ORIGIN"))
    forebay.convert(source, tmp_path / "log", engine="partitionlog")
    forebay.convert(tmp_path / "log", tmp_path / "back", engine="commitlog")
    for path, named in ((source, topic), (tmp_path / "log", "orders_new")):
        with forebay.open(path) as store:
            letter = store.get(dead_topic(store, "g"), 0, 0)
            assert origin(letter)["original_topic"] == named
            assert letter.system_properties["DLQ_ORIGIN_MESSAGE_ID"] == "0A"
            Redriver(store, "g").redrive(None, lambda *_: None)
            assert store.topics[named].queues[0].max_offset == 2
    with forebay.open(tmp_path / "back", mode="r") as store:
        letter = store.get("%DLQ%g", 0, 0)
        assert origin(letter)["original_topic"] == "orders_new"
        assert letter.system_properties["DLQ_ORIGIN_MESSAGE_ID"] == "0A"


def test_a_time_that_no_engine_writes_is_refused_by_the_message(tmp_path):
    write(tmp_path / "logs" / "t-0", [[(5, None, b"x", []), (1 << 58, None, b"y", [])]])
    rule = r"timestamp of t queue 0 offset 1 must be in the years 1 to 9999"
    with pytest.raises(forebay.InvalidOptionError, match=rule):
        forebay.convert(tmp_path / "logs", tmp_path / "events", engine="commitlog")


def test_a_message_that_is_longer_than_a_batch_is_named(tmp_path):
    with forebay.open(tmp_path / "events", default_queues=1, commitlog_file_size=1 << 20) as store:
        store.send("t", b"x")
        store.send("t", b"y" * 8000)
    rule = r"record of t queue 0 offset 1 is 8\d\d\d bytes, limit 4096"
    with pytest.raises(forebay.MessageTooLargeError, match=rule):
        forebay.convert(
            tmp_path / "events", tmp_path / "log", engine="partitionlog", segment_bytes=4096
        )


def test_topics_are_chosen_and_named(golden, tmp_path):
    source = golden("lz4-0", "none-0")
    shutil.copytree(source / "lz4-0", source / "__consumer_offsets-3")
    done = forebay.convert(
        source, tmp_path / "one", engine="commitlog", topics=["lz4"], names={"lz4": "orders"}
    )
    assert done.topics == {"lz4": "orders"}
    with forebay.open(tmp_path / "one", mode="r") as store:
        assert list(store.topics) == ["orders"]
    done = forebay.convert(source, tmp_path / "all", engine="commitlog")
    assert done.left_out == {"__consumer_offsets": DIGESTS["lz4-0"]["records"]}
    for topics, names in ((["x"], {}), (None, {"x": "y"})):
        with pytest.raises(forebay.UnknownTopicError):
            forebay.convert(
                source, tmp_path / "two", engine="commitlog", topics=topics, names=names
            )
    with pytest.raises(forebay.InvalidTopicError):
        forebay.convert(source, tmp_path / "two", engine="commitlog", names={"lz4": "a.b"})


def test_what_cannot_be_converted_is_refused_and_leaves_nothing(golden, tmp_path):
    source = golden("lz4-0")
    with forebay.open(tmp_path / "events") as store:
        store.send("orders", b"x")
    for given, target, engine, error in (
        (tmp_path / "events", tmp_path / "new", "commitlog", "this form already"),
        (source, tmp_path / "new", "partitionlog", "this form already"),
        (source, tmp_path / "new", "memory", "engine"),
        (source, tmp_path / "new", "other", "engine"),
    ):
        with pytest.raises(forebay.InvalidOptionError, match=error):
            forebay.convert(given, target, engine=engine)
    with pytest.raises(forebay.StoreExistsError):
        forebay.convert(source, tmp_path / "events", engine="commitlog")
    with pytest.raises(forebay.StoreNotFoundError):
        forebay.convert(tmp_path / "none", tmp_path / "new", engine="commitlog")
    assert [it.name for it in tmp_path.iterdir()] == ["events"]


def test_neither_of_two_stores_is_within_the_other(tmp_path):
    source = tmp_path / "all" / "store"
    with forebay.open(source, commitlog_file_size=1 << 20) as store:
        store.send("orders", b"x")
    (tmp_path / "link").symlink_to(source, target_is_directory=True)
    files = set(tmp_path.rglob("*"))
    for target, rule in [
        (source / "sub", "must not be within the store"),
        (tmp_path / "link" / "a" / "b", "must not be within the store"),
        (tmp_path / "all", "must not be a directory that contains the store"),
    ]:
        with pytest.raises(forebay.InvalidOptionError, match=f"target {rule} .*, got {target}"):
            forebay.convert(source, target, engine="partitionlog")
        with pytest.raises(forebay.InvalidOptionError, match=f"target {rule}"):
            forebay.convert(source, f"{target}/../{target.name}", engine="partitionlog")
    assert set(tmp_path.rglob("*")) == files
    assert forebay.convert(source, tmp_path / "all" / "stores", engine="partitionlog").messages == 1


def test_an_interrupted_conversion_is_continued_with_the_same_arguments(tmp_path):
    for queue in range(2):
        batches = [[(n, None, b"%d" % n, [])] * 1000 for n in range(70)]
        write(tmp_path / "logs" / f"t-{queue}", batches)

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done:
            raise StopError

    source, target = tmp_path / "logs", tmp_path / "events"
    with pytest.raises(StopError):
        forebay.convert(source, target, engine="commitlog", progress=stop)
    assert not target.exists()
    with pytest.raises(forebay.InvalidOptionError, match="its value of renumber differs"):
        forebay.convert(source, target, engine="commitlog", renumber=True)
    other = tmp_path / "other"
    source.rename(other)
    for queue in range(2):
        write(
            source / f"t-{queue}", [[(n, None, b"of another store", [])] * 1000 for n in range(70)]
        )
    with pytest.raises(forebay.InvalidOptionError, match="source is a different store"):
        forebay.convert(source, target, engine="commitlog")
    shutil.rmtree(source)
    other.rename(source)
    steps: list[int] = []
    done = forebay.convert(
        source, target, engine="commitlog", progress=lambda done, _: steps.append(done)
    )
    assert done.resumed and 0 < done.messages < 140_000
    # Ctrl-C ends the call at a report.
    assert all(after - before < 10_000 for before, after in itertools.pairwise(steps))
    with forebay.open(target, mode="r") as store:
        for queue in store.topics["t"].queues:
            assert (queue.min_offset, queue.max_offset) == (0, 70_000)
        assert store.get("t", 1, 69_999).body == b"69"
    assert [it.name for it in sorted(tmp_path.iterdir())] == ["events", "logs"]
