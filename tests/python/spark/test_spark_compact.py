"""The job `compact`: the newest message of each key, and every message without a key."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import forebay
from forebay.spark import compact

#: The module; in the package its name refers to the function.
module = sys.modules["forebay.spark.jobs.compact"]


def test_the_newest_message_of_each_key_is_kept(spark: Any, tmp_path: Path) -> None:
    path, target = tmp_path / "store", tmp_path / "newest"
    newest: dict[tuple[str, str], forebay.Message] = {}
    keyless = []
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        for number in range(600):
            topic = ("orders", "bills")[number % 2]
            keys = None if number % 5 == 0 else [f"k{number % 37}", f"extra{number}"]
            sent = store.send(
                topic,
                b"body %d" % number,
                keys=keys,
                tags=("paid", None)[number % 3 == 0],
                properties={"n": str(number), "FOREBAY_KEY": "base64"} if number % 4 else None,
                queue=number % 3,
                timestamp=datetime.fromtimestamp(1_700_000_000 + number, UTC),
            )
            message = store.get(topic, sent.queue, sent.offset)
            if keys is None:
                keyless.append(message)
            else:
                newest[topic, keys[0]] = message
        expected = sorted([*newest.values(), *keyless], key=lambda message: message.position)
        wanted = {
            topic: [facts(m) for m in expected if m.topic == topic] for topic in ("orders", "bills")
        }
        done = compact(spark, path, target, options={"commitlog_file_size": 1 << 20})
    assert (done.messages, done.kept, done.without_key) == (600, len(expected), len(keyless))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "store"]
    with forebay.open(target, mode="r") as store:
        assert store.verify().ok
        found = {}
        for topic in ("orders", "bills"):
            messages = sorted(store.tail(topic, "earliest", False), key=lambda m: m.position)
            found[topic] = [facts(message) for message in messages]
        assert found == wanted
        assert len(store.topics["orders"].queues) >= 3
        assert store.query("orders", "k8")[0].body == newest["orders", "k8"].body
    with pytest.raises(forebay.StoreExistsError):
        compact(spark, path, target)


def facts(message: forebay.Message) -> tuple[Any, ...]:
    """Return the parts of a message that compaction keeps."""
    return (
        message.queue,
        message.keys,
        message.tags,
        dict(message.properties),
        message.body,
        message.born_timestamp,
    )


def test_topics_are_chosen_and_may_be_empty(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        store.create_topic("empty", queues=2)
        for number in range(10):
            store.send("orders", b"x", key="k", queue=0)
            store.send("bills", b"%d" % number, key="k", queue=0)
    (tmp_path / "some.compacting" / "rows").mkdir(parents=True)
    done = compact(spark, path, tmp_path / "some", topics=["bills", "empty"])
    assert (done.messages, done.kept) == (10, 1)
    with forebay.open(tmp_path / "some", mode="r") as store:
        assert sorted(store.topics) == ["bills", "empty"]
        assert store.get("bills", 0, 0).body == b"9"
    assert compact(spark, path, tmp_path / "none", topics=["empty"]).kept == 0
    with pytest.raises(forebay.UnknownTopicError):
        compact(spark, path, tmp_path / "other", topics=["nothing"])


def test_rows_missing_on_the_driver_create_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imitate workers whose disk is not the driver's."""
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20) as store:
        store.send("orders", b"x", key="k", queue=0)

    def leave(_spark: Any, _root: str, _ranges: Any, rows: str) -> int:
        Path(rows).mkdir()
        table = pyarrow.table({"keys": ["k"]})
        pyarrow.parquet.write_table(table, f"{rows}/part-0.parquet")
        return 2

    monkeypatch.setattr(module, "_leave", leave)
    # Missing files are detected before anything is sent.
    monkeypatch.setattr(module, "_send", None)
    with pytest.raises(forebay.CorruptError, match="wrote 2 messages, but the driver found 1"):
        compact(None, tmp_path / "store", tmp_path / "newest")  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_one_compaction_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "store", tmp_path / "newest"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        store.send("orders", b"x", queue=0)
    left = tmp_path / "newest.compacting" / "rows" / "left"

    def leave(*_: Any) -> int:
        left.parent.mkdir()
        left.touch()
        with pytest.raises(BlockingIOError):
            compact(None, path, target)  # type: ignore[arg-type]
        # The work of the first compaction still exists.
        assert left.exists()
        return 0

    monkeypatch.setattr(module, "_leave", leave)
    assert compact(None, path, target).kept == 0  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "store"]
