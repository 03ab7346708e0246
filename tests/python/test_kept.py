"""Remembered options: a writer that gives none of them writes the store as its owner does."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import test_golden

import forebay
from forebay import _forebay
from forebay.cli import main


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Create a store without an index, two queues per topic, whose sends wait for the disk."""
    path = tmp_path / "own"
    forebay.open(path, index=False, default_queues=2, flush="sync").close()
    return path


def kept(path: Path) -> dict[str, object]:
    return json.loads((path / "forebay.options").read_bytes())


def test_a_commit_that_opens_the_store_itself_writes_it_as_its_owner_does(own):
    stager = _forebay.Stager(own, "q" * 32, "orders")
    stager.write(pa.record_batch({"key": ["a", "b", "c"], "value": [b"1", b"2", b"3"]}))
    _forebay.publish_commit(own, "q" * 32, 0, "batch", [stager.finish()])
    with forebay.open(own, mode="a") as store:
        _forebay.take_commits(store)
        assert store.send("orders", b"4", key="d").durable
        assert len(store.topics["orders"].queues) == 2
        assert [m.body for m in store.query("orders", "b")] == [b"2"]
    assert not (own / "index").exists()


def test_a_given_option_takes_precedence_and_is_kept(own):
    with forebay.open(own, index=True, flush="async") as store:
        assert not store.send("orders", b"1", key="a").durable
    with forebay.open(own, index=None, flush=None, default_queues=None) as store:
        assert not store.send("orders", b"2", key="a").durable
        assert len(store.topics["orders"].queues) == 2
    assert (own / "index").exists()
    assert kept(own) == {"index": True, "default_queues": 2, "flush": "async"}


@pytest.mark.parametrize("content", [b"\0" * 40, b'{"flush": "sy', b"[1]", b""])
def test_a_damaged_file_is_reported_and_the_defaults_hold(own, caplog, content):
    (own / "forebay.options").write_bytes(content)
    with forebay.open(own) as store:
        (damage,) = store.damage
        assert damage.path == str(own / "forebay.options")
        assert "not a table of options" in damage.reason
        assert "pass the options of the store to forebay.open once" in damage.reason
        assert not store.send("orders", b"1").durable
    assert "not a table of options" in caplog.text
    # The advice holds: either one ends the reports.
    forebay.open(own, flush="sync").close()
    with forebay.open(own) as store:
        assert store.damage == []
        assert store.send("orders", b"2").durable
    (own / "forebay.options").write_bytes(content)
    (own / "forebay.options").unlink()
    with forebay.open(own) as store:
        assert store.damage == []


def test_members_of_a_later_version_stay_and_have_no_effect(own):
    (own / "forebay.options").write_bytes(b'{"flush": "sync", "later": {"a": 1}}')
    with forebay.open(own, default_queues=2) as store:
        assert store.damage == []
        assert store.send("orders", b"1").durable
    assert kept(own) == {"flush": "sync", "later": {"a": 1}, "default_queues": 2}


def test_a_store_of_release_0_1_0_is_written_with_the_defaults_until_it_is_given_others(tmp_path):
    path, _ = test_golden.unpack("closed", tmp_path)
    with forebay.open(path) as store:
        assert store.damage == []
        store.send("plain", b"1")
        assert len(store.topics["plain"].queues) == 8
    assert not (path / "forebay.options").exists()
    forebay.open(path, default_queues=3).close()
    assert kept(path) == {"default_queues": 3}


OF_SEGMENTS = {
    "segment_bytes": 65536,
    "segment_ms": 3_600_000,
    "index_interval_bytes": 1024,
    "segment_index_bytes": 4096,
    "compression": "zstd",
    "message_timestamp_type": "LogAppendTime",
    "default_queues": 2,
    "flush": "sync",
    "max_message_size": 1000,
    "delay_levels": "1s 2s",
}


def test_a_partition_log_keeps_how_it_is_written_and_not_what_is_removed(tmp_path):
    path = tmp_path / "log"
    options = {"cleanup_policy": "compact", "retention_bytes": 1 << 30}
    forebay.open(path, engine="partitionlog", **OF_SEGMENTS, **options).close()
    assert kept(path) == OF_SEGMENTS
    with forebay.open(path) as store:
        assert store.damage == []
        sent = store.send("orders", bytes(1000), timestamp=datetime.fromtimestamp(1, UTC))
        assert sent.durable
        assert sent.timestamp > 1_000_000
        assert len(store.topics["orders"].queues) == 2
        with pytest.raises(forebay.MessageTooLargeError):
            store.send("orders", bytes(1001))
        assert store.get("orders", sent.queue, 0).stored_body == bytes(1000)
        producer = store.producer("orders", queue=0)
        for _ in range(20):
            producer.send_batch([random.randbytes(900) for _ in range(10)])
    # 180 kB that cannot be packed, in segments of 64 KiB.
    logs = sorted((path / "orders-0").glob("*.log"))
    assert len(logs) >= 3
    assert all(log.stat().st_size <= 65536 for log in logs)
    with forebay.open(path, compression="none", segment_bytes=None) as store:
        store.send("orders", b"x")
    assert kept(path) == {**OF_SEGMENTS, "compression": "none"}


def test_a_damaged_file_of_a_partition_log_is_reported_by_opening_and_verifying(tmp_path):
    path = tmp_path / "log"
    forebay.open(path, engine="partitionlog", segment_bytes=65536).close()
    (path / "forebay.options").write_bytes(b'{"segment_bytes": 7, "compression": "zip"}')
    with forebay.open(path, mode="r") as reader:
        assert reader.damage == []
        (damage,) = reader.verify().damage
        assert damage.path == str(path / "forebay.options")
    with forebay.open(path, segment_bytes=8192, compression="lz4") as store:
        assert store.damage == []
    (path / "forebay.options").write_bytes(b'{"segment_bytes": 7, "compression": "zip"}')
    with forebay.open(path) as store:
        (damage,) = store.damage
        assert "invalid value for segment_bytes, compression" in damage.reason
        store.send("orders", b"x")


DAMAGED = b'{"segment_bytes": 7, "compression": "zstd"}'


def test_a_repair_mends_the_file_of_a_partition_log(tmp_path):
    path = tmp_path / "log"
    forebay.open(path, engine="partitionlog").close()
    for number, (content, left) in enumerate([(DAMAGED, {"compression": "zstd"}), (b"[1]", {})]):
        (path / "forebay.options").write_bytes(content)
        with forebay.open(path) as store:
            repair = store.repair()
            assert (repair.ok, store.damage) == (True, [])
            assert store.repair().steps == []
        (step,) = repair.steps
        assert (step.path, step.length) == (str(path / "forebay.options"), len(content))
        name = "forebay.options.damaged" + f".{number}" * (number > 0)
        assert step.saved == str(path / name)
        assert (path / name).read_bytes() == content
        assert kept(path) == left
    with forebay.open(path) as store:
        assert store.damage == []


def test_the_verb_repair_mends_the_file_of_a_partition_log(tmp_path, capsys):
    path = tmp_path / "log"
    forebay.open(path, engine="partitionlog").close()
    (path / "forebay.options").write_bytes(DAMAGED)
    assert main(["verify", str(path)]) == 1
    assert main(["repair", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    text = capsys.readouterr().out
    assert "invalid value for segment_bytes" in text
    assert "rewritten with the options that could be read" in text


@pytest.mark.parametrize("name", ["index", "checksum", "unique_ids", "default_queues", "flush"])
def test_a_value_of_another_type_is_refused(tmp_path, name):
    with pytest.raises((TypeError, forebay.InvalidOptionError)):
        forebay.open(tmp_path / "new", **{name: 1.5})
    assert not (tmp_path / "new").exists()
