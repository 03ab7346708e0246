"""Log directories that Kafka wrote, read as stores: each golden folder to its listed messages."""

from __future__ import annotations

import gzip
import itertools
import json
import pickle
import shutil
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden_stores import (
    DIGESTS,
    KAFKA,
    damage_second_batch,
    digest,
    unpack_partitions,
    whole_set,
)
from kafka_batches import write

import forebay


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory with all golden partitions."""
    return unpack_partitions(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="module")
def logs(root: Path) -> Iterator[forebay.Store]:
    """Return the store over them."""
    with forebay.open(root, mode="r") as store:
        yield store


def listed(name: str) -> list[dict[str, Any]]:
    with gzip.open(KAFKA / f"{name}.first50.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def hexadecimal(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def assert_listed(rows: list[dict[str, Any]], messages: list[forebay.Message]) -> None:
    """Check messages against the listing of as many by Kafka's own reader."""
    for row, it in zip(rows, messages, strict=True):
        found = {
            "offset": it.offset,
            "timestamp": it.store_timestamp,
            "key": hexadecimal(it.key_bytes),
            "value": None if it.is_null else it.body.hex(),
            "headers": [[name.encode().hex(), hexadecimal(value)] for name, value in it.headers],
        }
        assert found == {name: row[name] for name in found}


def read_all(store: forebay.Store, topic: str, step: int) -> list[forebay.Message]:
    (queue,) = store.topics[topic].queues
    found: list[forebay.Message] = []
    at = queue.min_offset
    while at < queue.max_offset:
        batch = store.read(topic, queue.id, at, max_messages=step)
        assert batch.next_offset > at
        found += batch.messages
        at = batch.next_offset
    return found


def test_the_directory_is_recognised(root: Path, logs: forebay.Store):
    assert (logs.engine, logs.mode) == ("partitionlog", "r")
    assert sorted(logs.topics) == sorted(name.removesuffix("-0") for name in DIGESTS)
    with forebay.open(root, mode="r", engine="partitionlog") as store:
        assert store.topics.keys() == logs.topics.keys()


@pytest.mark.parametrize("name", DIGESTS)
def test_each_folder_is_read_to_the_messages_that_kafka_lists(logs: forebay.Store, name: str):
    known, topic = DIGESTS[name], name.removesuffix("-0")
    messages = read_all(logs, topic, 300)
    assert len(messages) == known["records"]
    assert digest(messages[:50]) == known["first50"]
    if "sha256" in known:
        assert digest(messages) == known["sha256"]
    assert_listed(listed(name), messages[:50])
    assert all(it.message_id == f"{topic}-0@{it.offset}" for it in messages)
    assert list(logs.tail(topic, start="earliest", follow=False)) == messages
    table = pa.table(
        logs.scan(topic, columns=["offset", "store_timestamp", "keys", "headers", "body"])
    )
    assert table["offset"].to_pylist() == [it.offset for it in messages]
    assert table["body"].to_pylist() == [it.body for it in messages]
    assert table["keys"].to_pylist() == [it.key for it in messages]
    headers = [[{"key": name, "value": value} for name, value in it.headers] for it in messages]
    assert table["headers"].to_pylist() == headers


def test_the_whole_set_is_read_if_it_exists():
    """Some of the folders here were cut, and so have no digest; there every folder has one."""
    if (folder := whole_set()) is None:
        pytest.skip("the folder of the whole set does not exist")
    digests = {it["dir"]: it["read"] for it in json.loads((folder / "digests.json").read_text())}
    assert digests.keys() == DIGESTS.keys()
    with forebay.open(folder, mode="r") as store:
        assert sorted(store.topics) == sorted(name.removesuffix("-0") for name in digests)
        for name, known in digests.items():
            messages = read_all(store, name.removesuffix("-0"), 300)
            assert (len(messages), digest(messages)) == (known["records"], known["sha256"]), name
            rows = (folder / f"{name}.first50.jsonl").read_text().splitlines()
            assert_listed([json.loads(line) for line in rows], messages[:50])
        report = store.verify()
        total = sum(known["records"] for known in digests.values())
        assert (report.ok, report.records) == (True, total)


def test_a_message_has_bytes_where_kafka_has_bytes(logs: forebay.Store):
    messages = read_all(logs, "none", 1000)
    headers = [header for it in messages for header in it.headers]
    assert any(value is None for _, value in headers)
    assert any(name == "" for name, _ in headers)
    assert any(it.key_bytes is None and it.key is None and it.keys == () for it in messages)
    assert any(it.key_bytes == b"" and it.key == "" for it in messages)
    assert any(it.is_null for it in messages)
    it = next(it for it in messages if len(it.headers) > 1)
    assert it.properties == {
        name: value.decode() for name, value in it.headers if value is not None
    }
    assert (it.tags, it.system_properties, it.sys_flag) == (None, {}, 0)
    again = pickle.loads(pickle.dumps(it))
    assert again == it and again.headers == it.headers and again.key_bytes == it.key_bytes
    assert logs.message(it.message_id) == it
    assert bytes(memoryview(it)) == it.body


def test_offsets_that_compaction_removed_name_the_next_message(logs: forebay.Store):
    messages = read_all(logs, "compacted", 1000)
    offsets = {it.offset for it in messages}
    missing = next(
        offset for offset in itertools.count(messages[0].offset) if offset not in offsets
    )
    following = min(offset for offset in offsets if offset > missing)
    with pytest.raises(forebay.OffsetOutOfRangeError) as error:
        logs.get("compacted", 0, missing)
    assert error.value.min_offset == following
    batch = logs.read("compacted", 0, missing, max_messages=1)
    assert (batch.status, batch.messages[0].offset) == (forebay.ReadStatus.FOUND, following)
    assert logs.get("compacted", 0, following) == batch.messages[0]


def test_a_time_is_that_of_the_first_message_at_or_after_it(logs: forebay.Store):
    for topic in ("txn", "appendtime", "v1gzip"):
        messages = read_all(logs, topic, 1000)
        for it in messages[::97]:
            late = next(one for one in messages if one.store_timestamp >= it.store_timestamp)
            assert logs.offset_at(topic, 0, it.store_timestamp) == late.offset
        start = datetime.fromtimestamp(messages[9].store_timestamp / 1000, UTC)
        table = pa.table(logs.scan(topic, start=start, columns=["offset"]))
        assert table["offset"][0].as_py() == logs.offset_at(topic, 0, start)
    (queue,) = logs.topics["v0"].queues
    assert logs.offset_at("v0", 0, 0) == queue.max_offset


def test_committed_messages_alone_are_read_if_asked_for(root: Path, logs: forebay.Store):
    with forebay.open(root, mode="r", isolation="read_committed") as committed:
        found = read_all(committed, "txn", 100)
        ends = [store.topics["txn"].queues[0].max_offset for store in (committed, logs)]
        again = pickle.loads(pickle.dumps(committed))
        assert read_all(again, "txn", 10) == found
        again.close()
    aborted = set()
    for index in sorted((root / "txn-0").glob("*.txnindex")):
        for _, _, first, last, _ in struct.iter_unpack(">hqqqq", index.read_bytes()):
            aborted.update(range(first, last + 1))
    assert aborted and ends[0] < ends[1] == 1012
    missing = {it.offset for it in read_all(logs, "txn", 1000)} - {it.offset for it in found}
    assert {offset for offset in missing if offset < ends[0]} <= aborted
    assert {it.offset for it in found}.isdisjoint({min(aborted)})


def test_everything_is_scanned_verified_and_queried(logs: forebay.Store):
    total = sum(known["records"] for known in DIGESTS.values())
    assert pa.table(logs.scan(columns=["offset"])).num_rows == total
    report = logs.verify()
    assert (report.ok, report.records, logs.damage) == (True, total, [])
    named = [it for it in read_all(logs, "txn", 1000) if it.key == "key-1"]
    found = logs.query("txn", key="key-1")
    assert sorted(found, key=lambda it: it.offset) == named
    table = pa.table(logs.scan("txn", key="key-1", columns=["offset"]))
    assert table["offset"].to_pylist() == [it.offset for it in named]


def test_what_a_broker_appends_is_read(root: Path, tmp_path: Path):
    source = root / "gzip-0" / f"{0:020}.log"
    data = source.read_bytes()
    cuts = []
    at = 0
    while at < len(data):
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        cuts.append(at)
    folder = tmp_path / "log" / "live-0"
    folder.mkdir(parents=True)
    live = folder / source.name
    live.write_bytes(data[: cuts[0]])
    with forebay.open(tmp_path / "log", mode="r") as store:
        with store.tail("live", start="earliest", timeout=600) as tail:
            first = [next(tail) for _ in range(store.topics["live"].queues[0].max_offset)]
            with live.open("ab") as file:
                file.write(data[cuts[0] : cuts[3]])
            assert next(tail).offset == first[-1].offset + 1
        # A batch that is not whole is not there yet.
        end = store.topics["live"].queues[0].max_offset
        with live.open("ab") as file:
            file.write(data[cuts[3] : cuts[4] - 1])
        assert store.topics["live"].queues[0].max_offset == end
        assert store.damage == []


def test_damage_costs_the_batch_and_is_reported(root: Path, tmp_path: Path):
    shutil.copytree(root / "lz4-0", tmp_path / "lz4-0")
    log = tmp_path / "lz4-0" / f"{0:020}.log"
    at, lost = damage_second_batch(log)
    with forebay.open(tmp_path, mode="r") as store:
        offsets = [it.offset for it in read_all(store, "lz4", 1000)]
        assert set(lost).isdisjoint(offsets)
        assert len(offsets) == DIGESTS["lz4-0"]["records"] - len(lost)
        (damage,) = store.damage
        assert (damage.path, damage.position, len(damage.lost)) == (str(log), at, len(lost))
        with pytest.raises(forebay.CorruptError):
            store.get("lz4", 0, lost.start)


def test_nothing_is_written(root: Path, logs: forebay.Store):
    for options in ({}, {"engine": "partitionlog"}):
        with pytest.raises(forebay.ForeignStoreError, match="adopt=True"):
            forebay.open(root, **options)
    with pytest.raises(forebay.StoreExistsError):
        forebay.open(root, mode="x")
    with pytest.raises(forebay.ReadOnlyError):
        logs.send("none", b"x")
    with pytest.raises(forebay.ReadOnlyError):
        logs.consumer("none", group="g")
    with pytest.raises(forebay.UnsupportedError):
        logs.message(0)


def test_other_directories_and_options_are_refused(root: Path, tmp_path: Path):
    with pytest.raises(forebay.NotAStoreError, match="the folder above"):
        forebay.open(root / "none-0", mode="r")
    with pytest.raises(forebay.NotAStoreError, match="orders-0"):
        forebay.open(tmp_path, mode="r", engine="partitionlog")
    with pytest.raises(forebay.StoreNotFoundError):
        forebay.open(tmp_path / "none", mode="r", engine="partitionlog")
    with pytest.raises(forebay.InvalidOptionError, match="partition log"):
        forebay.open(":memory:", isolation="read_committed")
    with pytest.raises(forebay.InvalidOptionError, match="read_committed"):
        forebay.open(root, mode="r", isolation="serializable")  # type: ignore[arg-type]
    with pytest.raises(forebay.InvalidOptionError):
        forebay.open(":memory:", engine="partitionlog")


def test_query_engines_do_not_trust_times_to_rise(tmp_path: Path):
    polars = pytest.importorskip("polars")
    import forebay.polars

    times = [1000, 9000, 2000]
    write(tmp_path / "t-0", [[(time, None, b"", [])] for time in times])
    with forebay.open(tmp_path, mode="r") as store:
        assert [it.store_timestamp for it in read_all(store, "t", 10)] == times
        late = datetime.fromtimestamp(5, UTC)
        rows = (
            forebay.polars.scan(store, "t").filter(polars.col("store_timestamp") < late).collect()
        )
        assert rows["offset"].to_list() == [0, 2]
