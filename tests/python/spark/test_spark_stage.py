"""Staging and committing as Spark's tasks and driver do, without Spark."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from counted import once, values
from harness import LONG_S, PROOF, lacks
from nursery import Nursery, shim
from owner import Owner

import forebay
from forebay import _forebay
from forebay.errors import (
    DiskFullError,
    ForebayError,
    InvalidOptionError,
    InvalidTopicError,
    MessageTooLargeError,
    StoreFailedError,
    StoreLockedError,
)
from forebay.spark.sink import ForebayWriter, _commit, _discard
from forebay.spark.stage import StageMessage, stage
from forebay.spark.write import WriteOptions

MARKERS = "rmq_sys_forebay_commits"
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
DAY_S = 24 * 3600


def rows(numbers: range, topic: str | None = None) -> pyarrow.RecordBatch:
    """Return a batch with these numbers as values."""
    columns: dict[str, Any] = {"value": [str(number).encode() for number in numbers]}
    if topic is not None:
        columns["topic"] = [topic] * len(numbers)
    return pyarrow.record_batch(columns)


def staged(path: Path, query: str, *ranges: range) -> list[Any]:
    """Stage each range as a separate task."""
    found = [stage(str(path), query, "t", iter([rows(numbers)])).staged for numbers in ranges]
    return [one for one in found if one is not None]


def commit(path: Path, batch: int, stages: list[Any], **options: Any) -> None:
    _commit(WriteOptions(str(path), **options), "stream", "q", batch, stages)


def left(path: Path, query: str = "q") -> list[str]:
    """Return the files that are left of a query."""
    if (path / "forebay.partitionlog").exists():
        begin = f"forebay.stages.{query}."
        names = [found.name for found in path.iterdir()]
        return sorted(name.removeprefix(begin) for name in names if name.startswith(begin))
    return sorted(found.name for found in (path / "forebay.stages" / query).iterdir())


def create(path: Path, engine: Any) -> Path:
    """Create a partition log; a commit log is created by the first commit."""
    if engine == "partitionlog":
        forebay.open(path, engine=engine).close()
    return path


def test_every_column_of_a_row_is_in_the_message(tmp_path):
    born = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    batch = pyarrow.record_batch(
        {
            "value": pyarrow.array([b"a", b"", b"c"]),
            "key": pyarrow.array(["k1", None, "\N{SNOWMAN}"]),
            "topic": pyarrow.array(["one", "two", "one"]),
            "partition": pyarrow.array([0, None, 11], pyarrow.int32()),
            "headers": pyarrow.array([[{"key": "h", "value": b"1"}], None, []], HEADERS),
            "timestamp": pyarrow.array([born, None, born], pyarrow.timestamp("us", "UTC")),
            "tags": pyarrow.array([None, "paid", None]),
        }
    )
    found = stage(str(tmp_path), "q", None, iter([batch]))
    assert found.staged is not None
    assert found.staged.contents.rows == 3
    commit(tmp_path, 0, [found.staged])
    with forebay.open(tmp_path, mode="r") as store:
        first, third = store.get("one", 0, 0), store.get("one", 11, 0)
        (second,) = [m for q in store.topics["two"].queues for m in store.read("two", q.id, 0)]
        assert (first.body, first.keys, first.properties) == (b"a", ("k1",), {"h": "1"})
        assert (third.body, third.keys, third.born_time) == (b"c", ("\N{SNOWMAN}",), born)
        assert (second.body, second.keys, second.tags) == (b"", (), "paid")
        # The topic has the queue that a row named.
        assert len(store.topics["one"].queues) == 12
        assert store.verify().ok
    assert left(tmp_path) == []


def test_a_row_of_a_partition_log_has_the_bytes_and_the_place_of_kafkas(tmp_path):
    create(tmp_path, "partitionlog")
    born = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    batch = pyarrow.record_batch(
        {
            "value": pyarrow.array([b"a", None, b"\xff"]),
            "key": pyarrow.array([b"k1", b"\xff\x00", None]),
            "topic": pyarrow.array(["one.two"] * 3),
            "partition": pyarrow.array([None, None, 5], pyarrow.int32()),
            "headers": pyarrow.array([[{"key": "h", "value": b"\xfe"}], None, []], HEADERS),
            "timestamp": pyarrow.array([born] * 3, pyarrow.timestamp("us", "UTC")),
        }
    )
    found = stage(str(tmp_path), "q", None, iter([batch])).staged
    commit(tmp_path, 0, [found])
    # The batch runs again, and is in the log.
    commit(tmp_path, 0, [stage(str(tmp_path), "q", None, iter([batch])).staged])
    with forebay.open(tmp_path) as store:
        read = [m for q in store.topics["one.two"].queues for m in store.read("one.two", q.id, 0)]
        by_key = {message.key_bytes: message for message in read}
        assert len(by_key) == len(read) == 3
        assert by_key[b"k1"].body == b"a"
        assert by_key[b"k1"].headers == (("h", b"\xfe"),)
        assert by_key[b"k1"].born_time == born
        assert by_key[b"\xff\x00"].is_null
        assert by_key[None].queue == 5
        # A message that is sent with the key goes to the same queue.
        with store.producer("one.two") as producer:
            assert producer.send(b"b", keys=["k1"]).queue == by_key[b"k1"].queue
        assert store.verify().ok
    assert left(tmp_path) == []
    with pytest.raises(InvalidTopicError, match="limit 249"):
        stage(str(tmp_path), "q", "t" * 250, iter([rows(range(1))]))


def test_a_skipped_version_with_other_rows_is_logged(tmp_path, caplog):
    def write(version: int, numbers: range, conflict: str = "skip") -> list[str]:
        caplog.clear()
        options = WriteOptions(str(tmp_path), "t", 60, conflict, ("app", version))
        writer = ForebayWriter(options)
        writer.commit([writer.write(iter([rows(numbers)])), StageMessage("txn-app", None)])
        return [record.getMessage() for record in caplog.records]

    assert write(3, range(10)) == []
    assert write(5, range(10, 20)) == []
    # These versions were written: the first is a retry of the last one, the other of an older.
    assert write(5, range(10, 20)) == write(3, range(10)) == []
    for version, numbers in ((5, range(99)), (4, range(10)), (3, range(9))):
        (said,) = write(version, numbers)
        assert f"version {version} of txnAppId 'app' counts as done" in said
        assert f"these {len(numbers)} rows were not written" in said
    assert values(tmp_path) == once(range(20))
    for version in (3, 4, 5):
        with pytest.raises(StoreFailedError, match="batchConflict"):
            write(version, range(20, 30), "fail")
    assert write(4, range(20, 30), "append") == write(4, range(20, 30)) == []
    assert values(tmp_path) == once(range(30))
    # A version without rows leaves no marker in the log.
    assert write(9, range(0)) == write(9, range(30, 40)) == []
    assert values(tmp_path) == once(range(40))


#: Kafka keys, values and headers, some of which properties cannot hold unencoded.
CODED: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (b"plain", b"value", [("h", b"1")]),
    (b"\xff\x00", b"", None),
    (b"", b"value", None),
    (b"two words", None, None),
    (b"\t", None, [("h", b"\xff"), ("plain", b"1"), ("null", None), ("empty", b"")]),
    (None, None, [("", b"1"), ("KEYS", b"k"), ("FOREBAY_VALUE", b"null"), ("h", b"\x01\x02")]),
    (b"YQ==", b"value", [("same", b"1"), ("same", b"\xff"), ("same", b"2")]),
    (b"a\x00", b"value", [("FOREBAY_HEADER_0", b"YQ==:YQ==")]),
]


@pytest.mark.parametrize("unique_ids", [False, True])
def test_values_that_kafka_keeps_are_kept(tmp_path, unique_ids):
    """Spark's columns show what was written; Forebay's own columns show what is stored."""
    headers = [
        None if some is None else [{"key": name, "value": value} for name, value in some]
        for _, _, some in CODED
    ]
    batch = pyarrow.record_batch(
        {
            "key": pyarrow.array([key for key, _, _ in CODED], pyarrow.binary()),
            "value": pyarrow.array([value for _, value, _ in CODED], pyarrow.binary()),
            "headers": pyarrow.array(headers, HEADERS),
            "partition": pyarrow.array([0] * len(CODED), pyarrow.int32()),
        }
    )
    found = stage(str(tmp_path), "q", "t", iter([batch]))
    assert found.staged is not None
    with forebay.open(tmp_path, unique_ids=unique_ids) as store:
        commit(tmp_path, 0, [found.staged])
        columns = ["key", "value", "headers"]
        scan = _forebay.scan_again(store, {"dialect": "spark", "columns": columns, "topic": "t"})
        read = pyarrow.RecordBatchReader.from_stream(scan).read_all()
        assert read.column("key").to_pylist() == [key for key, _, _ in CODED]
        assert read.column("value").to_pylist() == [value for _, value, _ in CODED]
        assert read.column("headers").to_pylist() == headers
        plain, binary, empty, _, tomb = store.read("t", 0, 0).messages[:5]
        assert (plain.key, plain.properties) == ("plain", {"h": "1"})
        assert (binary.key, binary.properties) == ("/wA=", {"FOREBAY_KEY": "base64"})
        assert (empty.key, empty.properties) == (None, {"FOREBAY_KEY": "empty"})
        assert (tomb.body, tomb.key) == (b"", "CQ==")
        assert tomb.properties == {
            "FOREBAY_KEY": "base64",
            "FOREBAY_VALUE": "null",
            "FOREBAY_HEADER_0": "aA==:/w==",
            "plain": "1",
            "FOREBAY_HEADER_2": "bnVsbA==:-",
            "FOREBAY_HEADER_3": "ZW1wdHk=:",
        }
        assert store.verify().ok


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"value": [b"a", b"b"], "topic": ["t", "no/topic"]}, InvalidTopicError, "no/topic"),
        ({"value": [b"a", b"b"], "topic": ["t", MARKERS]}, InvalidTopicError, "reserved for"),
        ({"value": [b"a", b"b"], "topic": ["t", None]}, InvalidOptionError, "topic is null"),
        ({"value": [b"a", b"b"], "partition": [0, -1]}, InvalidOptionError, "got -1"),
        ({"value": [b"a", b"b"], "partition": [0, 65536]}, InvalidOptionError, "65535"),
        ({"value": [b"a", b"b"], "tags": ["x", "a||b"]}, InvalidOptionError, "subscriptions"),
        ({"value": [b"a", bytes((4 << 20) + 1)]}, MessageTooLargeError, "4194305"),
        ({"value": [b"a", b"b"], "headers": [[], [{"key": None, "value": b"v"}]]},
         InvalidOptionError, "must have a name"),
        ({"value": [b"a", b"b"], "key": ["k", "a b" * 10_000]}, MessageTooLargeError, "KEYS"),
    ],
)  # fmt: skip
def test_an_invalid_row_is_named_and_leaves_nothing(tmp_path, columns, error, words):
    topic = None if "topic" in columns else "t"
    types = {"headers": HEADERS, "partition": pyarrow.int32()}
    arrays = {name: pyarrow.array(found, types.get(name)) for name, found in columns.items()}
    # Rows are counted over all batches of a task.
    good = pyarrow.record_batch({name: array[:1] for name, array in arrays.items()})
    with pytest.raises(error, match=words) as raised:
        stage(str(tmp_path), "q", topic, iter([good, pyarrow.record_batch(arrays)]))
    assert raised.value.row == 2
    assert left(tmp_path) == []


def test_a_task_without_rows_stages_nothing(tmp_path):
    assert stage(str(tmp_path), "q", "t", iter([])).staged is None
    assert stage(str(tmp_path), "q", "t", iter([rows(range(0))])).staged is None
    assert left(tmp_path) == []


def test_a_task_that_fails_leaves_no_file(tmp_path):
    def batches():
        yield rows(range(50_000))
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        stage(str(tmp_path), "q", "t", batches())
    assert left(tmp_path) == []


def test_one_of_two_attempts_of_a_task_counts(tmp_path):
    """Speculation: both attempts finish, and the driver names one of them."""
    first, second = staged(tmp_path, "q", range(10), range(10))
    commit(tmp_path, 0, [first])
    assert values(tmp_path) == once(range(10))
    assert left(tmp_path) == [second.name]
    _discard(str(tmp_path), [StageMessage("q", second), None])
    assert left(tmp_path) == []


def test_a_repeated_batch_is_appended_once(tmp_path):
    """The rows are the same, but may be divided into tasks differently."""
    commit(tmp_path, 0, staged(tmp_path, "q", range(10)))
    commit(tmp_path, 1, staged(tmp_path, "q", range(10, 14), range(14, 20)))
    commit(tmp_path, 1, staged(tmp_path, "q", range(10, 20)))
    commit(tmp_path, 0, staged(tmp_path, "q", range(5), range(5, 10)))
    assert values(tmp_path) == once(range(20))
    assert left(tmp_path) == []
    # Another query starts at 0 independently.
    _commit(WriteOptions(str(tmp_path)), "stream", "r", 0, staged(tmp_path, "r", range(20, 22)))
    assert values(tmp_path) == once(range(22))


def test_the_earlier_commit_of_a_batch_wins(tmp_path):
    path = str(tmp_path)
    first = staged(tmp_path, "q", range(4), range(4, 10))
    assert _forebay.publish_commit(path, "q", 0, "stream", first)
    again = staged(tmp_path, "q", range(10))
    assert not _forebay.publish_commit(path, "q", 0, "stream", again)
    assert left(tmp_path) == sorted(["commit-0", *(one.name for one in first + again)])
    # An abort leaves what a commit names.
    _discard(path, [StageMessage("q", one) for one in first + again])
    assert left(tmp_path) == sorted(["commit-0", *(one.name for one in first)])
    commit(tmp_path, 0, staged(tmp_path, "q", range(10)))
    assert values(tmp_path) == once(range(10))
    assert left(tmp_path) == []


def test_a_commit_loses_neither_to_other_rows_of_its_number_nor_to_a_broken_one(tmp_path):
    """An earlier attempt died after it left a manifest."""
    path = str(tmp_path)
    _forebay.publish_commit(path, "q", 0, "stream", staged(tmp_path, "q", range(4)))
    with pytest.raises(StoreFailedError, match=r"other rows \(4 rows there, 6 rows here\)"):
        commit(tmp_path, 0, staged(tmp_path, "q", range(4, 10)))
    assert values(tmp_path) == once(range(4))
    (broken,) = staged(tmp_path, "q", range(10, 12))
    _forebay.publish_commit(path, "q", 1, "stream", [broken])
    os.truncate(tmp_path / "forebay.stages" / "q" / broken.name, 10)
    commit(tmp_path, 1, staged(tmp_path, "q", range(10, 14)))
    assert values(tmp_path) == once(range(4)) + once(range(10, 14))
    # A power loss may leave the manifest empty.
    _forebay.publish_commit(path, "q", 2, "stream", staged(tmp_path, "q", range(2)))
    os.truncate(tmp_path / "forebay.stages" / "q" / "commit-2", 0)
    commit(tmp_path, 2, staged(tmp_path, "q", range(14, 18)))
    assert values(tmp_path) == once(range(4)) + once(range(10, 18))
    # The stage that no manifest names is left for the sweep; everything else is gone.
    assert [name for name in left(tmp_path) if not name.startswith("stage-")] == ["refused-0"]
    assert len(left(tmp_path)) == 2


@pytest.mark.parametrize("owned", [False, True], ids=["driver", "writer"])
def test_a_batch_of_a_rolled_back_checkpoint_is_not_skipped(tmp_path, owned):
    """The batch number is in the log, its rows are not."""
    with Owner(tmp_path) if owned else contextlib.nullcontext():
        for batch in range(3):
            commit(tmp_path, batch, staged(tmp_path, "q", range(batch * 4, batch * 4 + 4)))
        for batch in (1, 2):
            stages = staged(tmp_path, "q", range(20, 24))
            with pytest.raises(StoreFailedError, match="batchConflict") as raised:
                commit(tmp_path, batch, stages)
            assert not raised.value.appended
            _discard(str(tmp_path), [StageMessage("q", one) for one in stages])
        assert values(tmp_path) == once(range(12))
        commit(tmp_path, 1, staged(tmp_path, "q", range(4, 8)))
        commit(tmp_path, 1, staged(tmp_path, "q", range(20, 24)), batch_conflict="skip")
        assert values(tmp_path) == once(range(12))
        commit(tmp_path, 1, staged(tmp_path, "q", range(20, 24)), batch_conflict="append")
        assert values(tmp_path) == once(range(12)) + once(range(20, 24))


@pytest.mark.parametrize("owned", [False, True], ids=["driver", "writer"])
def test_a_batch_without_a_marker_is_skipped(tmp_path, owned):
    """Only a later batch shows that the number is old: the first time it had no rows."""
    with Owner(tmp_path) if owned else contextlib.nullcontext():
        for batch in (0, 2):
            commit(tmp_path, batch, staged(tmp_path, "q", range(batch * 4, batch * 4 + 4)))
        commit(tmp_path, 1, staged(tmp_path, "q", range(20, 24)), batch_conflict="skip")
        assert values(tmp_path) == once(range(4)) + once(range(8, 12))


def test_a_failure_of_the_store_is_not_a_refusal_and_is_not_retried(tmp_path, monkeypatch):
    """An earlier attempt left a manifest, and the store that should process it failed."""
    path = str(tmp_path)
    _forebay.publish_commit(path, "q", 0, "stream", staged(tmp_path, "q", range(4)))
    later = staged(tmp_path, "q", range(4))

    def fail(_: object) -> None:
        raise StoreFailedError("the disk is gone", reason="the disk is gone", appended=False)

    with monkeypatch.context() as patch:
        patch.setattr(_forebay, "take_commits", fail)
        patch.setattr(forebay, "open", lambda *_, **__: contextlib.nullcontext())
        with pytest.raises(StoreFailedError, match="the disk is gone; the commit stays pending"):
            commit(tmp_path, 0, later)
    commit(tmp_path, 0, later)
    assert values(tmp_path) == once(range(4))


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_commit_that_is_gone_is_done_only_if_the_log_holds_it(tmp_path, monkeypatch, kind):
    """Another process withdraws the commit just before this one processes it."""
    commit(tmp_path, 0, staged(tmp_path, "q", range(4)))
    opened = forebay.open

    def withdraw(_: object) -> None:
        assert _forebay.withdraw_commit(str(tmp_path), "q", 1)

    def open_to_read(*arguments: Any, mode: str, **options: Any) -> Any:
        # The store's own thread would process the commit.
        reads = mode == "r"
        return opened(*arguments, mode=mode, **options) if reads else contextlib.nullcontext()

    with monkeypatch.context() as patch:
        patch.setattr(_forebay, "take_commits", withdraw)
        patch.setattr(forebay, "open", open_to_read)
        with pytest.raises(StoreFailedError, match="the log holds no marker of it") as raised:
            _commit(WriteOptions(str(tmp_path)), kind, "q", 1, staged(tmp_path, "q", range(4, 7)))
    assert not raised.value.appended
    commit(tmp_path, 1, staged(tmp_path, "q", range(4, 7)))
    assert values(tmp_path) == once(range(7))


@pytest.mark.parametrize("begun", [False, True])
def test_a_job_without_space_reports_the_state_of_its_commit(tmp_path, monkeypatch, begun):
    """After a full disk, the error must not claim that nothing was appended if a part was."""
    stages = staged(tmp_path, "q", range(3))
    names = tmp_path / "forebay.stages" / "q"

    def fill(_: object) -> None:
        if begun:
            (names / "commit-0").rename(names / "taken-0")
        text = "no space; nothing was appended"
        raise DiskFullError(text, path=str(tmp_path), needed=4096, free=7)

    with monkeypatch.context() as patch:
        patch.setattr(_forebay, "take_commits", fill)
        # The store's own thread would process the commit.
        patch.setattr(forebay, "open", lambda *_, **__: contextlib.nullcontext())
        with pytest.raises(DiskFullError) as raised:
            _commit(WriteOptions(str(tmp_path), "t"), "batch", "q", 0, stages)
    assert (raised.value.needed, raised.value.free) == (4096, 7)
    text = str(raised.value)
    if begun:
        assert "nothing was" not in text
        assert "will finish it" in text
        assert "forebay commits show" in text
        with forebay.open(tmp_path) as store:
            _forebay.take_commits(store)
        assert values(tmp_path) == once(range(3))
    else:
        assert "withdrawn; nothing was written" in text
        assert left(tmp_path) == []


def test_a_long_commit_has_several_parts_and_each_a_marker(tmp_path):
    batch = pyarrow.record_batch({"value": [bytes(1 << 20)] * 14})
    one = stage(str(tmp_path), "q", "t", iter([batch])).staged
    commit(tmp_path, 3, [one])
    with forebay.open(tmp_path, mode="r") as store:
        bodies = [json.loads(found.body) for found in store.query(MARKERS, "q")]
        # Each row exceeds a stretch, and each stretch is one part.
        assert [body["part"] for body in bodies] == list(range(14, 0, -1))
        assert {(body["parts"], body["batch"]) for body in bodies} == {(14, 3)}
        assert len(store.query(MARKERS, "q:3:2")) == 1
        assert sum(queue.max_offset for queue in store.topics["t"].queues) == 14


def test_a_store_without_an_index_finds_its_markers(tmp_path):
    with forebay.open(tmp_path, index=False):
        pass
    shutil.rmtree(tmp_path / "index", ignore_errors=True)
    for batch in (0, 0, 1, 0, 1):
        stages = staged(tmp_path, "q", range(batch * 5, batch * 5 + 5))
        _forebay.publish_commit(str(tmp_path), "q", batch, "stream", stages)
        with forebay.open(tmp_path, index=False) as store:
            _forebay.take_commits(store)
    assert values(tmp_path) == once(range(10))


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_a_store_that_another_process_writes_is_committed_to(tmp_path, engine):
    with Owner(create(tmp_path, engine)):
        for batch in range(5):
            commit(tmp_path, batch, staged(tmp_path, "q", range(batch * 3, batch * 3 + 3)))
            assert values(tmp_path) == once(range(batch * 3 + 3))
    assert values(tmp_path) == once(range(15))


@pytest.mark.parametrize("kind", ["stream", "batch"])
def test_a_writer_that_does_not_answer_is_named(tmp_path, kind):
    options = WriteOptions(str(tmp_path), commit_timeout=0.3)
    with Owner(tmp_path) as owner:
        owner.signal(signal.SIGSTOP)
        stages = staged(tmp_path, "q", range(10))
        with pytest.raises(StoreLockedError, match=f"process {owner.pid}") as raised:
            _commit(options, kind, "q", 0, stages)
        assert raised.value.pid == owner.pid
        # Spark does this with a commit that failed.
        _discard(str(tmp_path), [StageMessage("q", one) for one in stages])
        if kind == "batch":
            assert "withdrawn" in str(raised.value)
            assert left(tmp_path) == []
        else:
            assert "pending" in str(raised.value)
            assert left(tmp_path) == sorted(["commit-0", stages[0].name])
    # The batch is run again, whichever process handled the first commit.
    commit(tmp_path, 0, staged(tmp_path, "q", range(5), range(5, 10)))
    assert values(tmp_path) == once(range(10))


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_manifest_that_is_visible_although_publishing_it_failed(tmp_path, monkeypatch, kind):
    """The directory sync after the rename fails: the job fails."""
    publish = _forebay.publish_commit

    def fail(*arguments: Any) -> None:
        publish(*arguments)
        raise OSError("sync")

    stages = staged(tmp_path, "q", range(3))
    with monkeypatch.context() as patch:
        patch.setattr(_forebay, "publish_commit", fail)
        with pytest.raises(OSError, match="sync"):
            _commit(WriteOptions(str(tmp_path), "t"), kind, "q", 0, stages)
    if kind == "batch":
        assert left(tmp_path) == []
        with forebay.open(tmp_path) as store:
            assert "t" not in store.topics
    else:
        # The batch is run again, and finds the commit.
        commit(tmp_path, 0, staged(tmp_path, "q", range(3)))
        assert values(tmp_path) == once(range(3))


def test_a_waiting_driver_takes_over_from_a_writer_that_dies(tmp_path):
    owner = Owner(tmp_path)
    owner.signal(signal.SIGSTOP)
    stages = staged(tmp_path, "q", range(10))
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -KILL {owner.pid}"])
    commit(tmp_path, 0, stages)
    killer.wait()
    owner.kill()
    assert values(tmp_path) == once(range(10))


def test_a_commit_that_cannot_be_appended_is_refused_and_the_next_one_succeeds(tmp_path):
    stages = staged(tmp_path, "q", range(10))
    path = tmp_path / "forebay.stages" / "q" / stages[0].name
    bytes_ = bytearray(path.read_bytes())
    bytes_[100] ^= 1
    path.write_bytes(bytes_)
    with pytest.raises(StoreFailedError, match="checksum"):
        commit(tmp_path, 0, stages)
    gone = staged(tmp_path, "q", range(10))
    (tmp_path / "forebay.stages" / "q" / gone[0].name).unlink()
    with pytest.raises(StoreFailedError, match=gone[0].name):
        commit(tmp_path, 0, gone)
    commit(tmp_path, 0, staged(tmp_path, "q", range(10)))
    assert values(tmp_path) == once(range(10))


def test_retention_keeps_the_last_marker_of_a_stream(tmp_path):
    small = {"commitlog_file_size": 1 << 16, "queue_file_entries": 100, "retention_bytes": 1 << 17}
    with forebay.open(tmp_path, **small) as store:
        for query, kind in (("q", "stream"), ("b", "batch")):
            found = staged(tmp_path, query, range(5))
            _forebay.publish_commit(str(tmp_path), query, 7, kind, found)
        _forebay.take_commits(store)
        position = store.query(MARKERS, "q")[0].position
        until = time.monotonic() + LONG_S
        while store.stats().min_position <= position:
            assert time.monotonic() < until
            store.producer("noise").send_batch([bytes(1000)] * 200)
            time.sleep(0.05)
        assert [json.loads(found.body)["batch"] for found in store.query(MARKERS, "q")] == [7]
        assert store.query(MARKERS, "b") == []
        count = store.topics["t"].queues[0].max_offset
        found = staged(tmp_path, "q", range(5))
        _forebay.publish_commit(str(tmp_path), "q", 7, "stream", found)
        _forebay.take_commits(store)
        assert store.topics["t"].queues[0].max_offset == count
        assert store.verify().ok


def test_unclaimed_stages_are_swept_after_a_day(tmp_path):
    path = tmp_path / "events"
    old, young, named = (one.name for one in staged(path, "q", *[range(1)] * 3))
    names = path / "forebay.stages" / "q"
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (names / "stage-link").symlink_to(target)
    for name in ("stage-1.tmp", "commit-1.tmp", "refused-4", "mine", "stage-x y"):
        (names / name).write_bytes(b"{}")
    yesterday = time.time() - DAY_S - 60
    for name in (old, "stage-1.tmp", "commit-1.tmp", "refused-4", "mine", "stage-x y"):
        os.utime(names / name, (yesterday, yesterday))
    os.utime(names / "stage-link", (yesterday, yesterday), follow_symlinks=False)
    empty = path / "forebay.stages" / "empty"
    empty.mkdir()
    os.utime(empty, (yesterday, yesterday))
    with forebay.open(path) as store:
        _forebay.take_commits(store)
        assert left(path) == sorted(["mine", "stage-link", "stage-x y", young, named])
        assert target.read_bytes() == b"mine"
        assert not empty.exists()


def test_the_writer_sweeps_by_itself(tmp_path):
    """No commit wakes the writer."""
    (old,) = staged(tmp_path, "q", range(3))
    path = tmp_path / "forebay.stages" / "q" / old.name
    yesterday = time.time() - DAY_S - 60
    os.utime(path, (yesterday, yesterday))
    with forebay.open(tmp_path):
        until = time.monotonic() + LONG_S
        while path.exists():
            assert time.monotonic() < until
            time.sleep(0.01)


def test_files_are_private_whatever_the_umask_is(tmp_path):
    before = os.umask(0)
    try:
        (one,) = staged(tmp_path / "new", "q", range(3))
        _forebay.publish_commit(str(tmp_path / "new"), "q", 0, "stream", [one])
    finally:
        os.umask(before)
    top = tmp_path / "new" / "forebay.stages"
    modes = {found: (top / found).stat().st_mode & 0o777 for found in (".", "q")}
    assert modes == {".": 0o700, "q": 0o700}
    files = {found.name: found.stat().st_mode & 0o777 for found in (top / "q").iterdir()}
    assert files == {one.name: 0o600, "commit-0": 0o600}


def test_files_of_a_partition_log_are_private_and_swept_after_a_day(tmp_path):
    create(tmp_path, "partitionlog")
    before = os.umask(0)
    try:
        old, named = (one.name for one in staged(tmp_path, "q", range(3), range(3)))
        stages = staged(tmp_path, "r", range(3))
        _forebay.publish_commit(str(tmp_path), "r", 0, "stream", stages)
    finally:
        os.umask(before)
    for name in ("forebay.intake", f"forebay.stages.q.{old}", "forebay.stages.r.commit-0"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    yesterday = time.time() - DAY_S - 60
    others = ["forebay.stages.q.mine", "forebay.stages.q", "forebay.stagesq.stage-1"]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    for name in (*others, f"forebay.stages.q.{old}"):
        os.utime(tmp_path / name, (yesterday, yesterday))
    with forebay.open(tmp_path) as store:
        _forebay.take_commits(store)
    assert left(tmp_path) == sorted(["mine", named])
    assert left(tmp_path, "r") == []
    assert all((tmp_path / name).exists() for name in others)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_another_file_in_place_of_the_page_of_a_partition_log_is_refused_or_replaced(
    tmp_path, kind
):
    create(tmp_path, "partitionlog")
    page, target = tmp_path / "forebay.intake", tmp_path / "target"
    target.write_bytes(b"mine")
    if kind == "link":
        page.symlink_to(target)
        with pytest.raises(ForebayError, match="not a regular file"):
            staged(tmp_path, "q", range(3))
        assert target.read_bytes() == b"mine"
        return
    page.write_bytes(bytes(4096))
    commit(tmp_path, 0, staged(tmp_path, "q", range(3)))
    assert values(tmp_path) == once(range(3))
    assert page.read_bytes()[:8] == b"FOREBAY1"


def test_a_link_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    store = tmp_path / "store"
    store.mkdir()
    (store / "forebay.stages").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ForebayError, match="not a directory"):
        staged(store, "q", range(3))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.fixture(scope="module")
def nursery():
    if shim() is None:
        lacks("cc", "there is no C compiler")
    with Nursery(failing_calls=True) as one:
        yield one


def die_at(nursery: Nursery, task: dict[str, Any]) -> bool:
    """Let a process die at a call; return whether it reached that call."""
    done = nursery.run({"role": "commit", **task})
    if done.status == 0:
        assert done.lines == ["ready"]
        return False
    assert done.status == -signal.SIGKILL, done.lines
    return True


@pytest.mark.parametrize("opened", [False, True], ids=["driver", "writer"])
@pytest.mark.parametrize(
    ("engine", "call"),
    [
        *(("commitlog", call) for call in ("rename", "unlink", "fsync", "msync")),
        *(("partitionlog", call) for call in ("rename", "fsync")),
    ],
)
def test_a_commit_interrupted_at_any_step_is_appended_once(nursery, tmp_path, engine, call, opened):
    """The driver, or the writer that processes the commit, dies before or after each call.

    Then the batch runs again with its rows divided differently, as in a restarted stream.
    """
    every = 1 if PROOF else 5 if engine == "commitlog" else 13
    for action in ("kill before", "kill after"):
        at, dies = 1, True
        while dies:
            path = create(tmp_path / f"{action}-{at}", engine)
            commit(path, 0, staged(path, "q", range(4)))
            stages = staged(path, "q", range(4, 7), range(7, 10))
            pickled = [pickle.dumps(one).hex() for one in stages]
            task = {"path": str(path), "opened": opened, "batch": 1, "staged": pickled}
            plan = {"call": call, "action": action, "at": at, "below": str(path)}
            dies = die_at(nursery, task | {"plan": plan})
            commit(path, 1, staged(path, "q", range(4, 10)))
            assert values(path) == once(range(10)), (call, action, at)
            assert not [found for found in left(path) if found.startswith(("commit-", "taken-"))
                        and not found.endswith(".tmp")]  # fmt: skip
            at += every
