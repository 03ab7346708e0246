"""Compaction of partition logs: on demand, in the background, on the command line, and refusals."""

from __future__ import annotations

import json
import time
from pathlib import Path

import kafka_batches as kafka
import pytest

import forebay
from forebay.cli import main

POLICY = {"state": "compact"}


def open_log(path: Path, **options: object) -> forebay.Store:
    given = {"segment_bytes": 4096, "default_queues": 1, "cleanup_policy": POLICY, **options}
    return forebay.open(path, engine="partitionlog", **given)  # type: ignore[arg-type]


def fill(store: forebay.Store, count: int = 300, keys: int = 5) -> None:
    producer = store.producer("state")
    for number in range(count):
        producer.send(b"value %d " % number * 8, key=f"key {number % keys}")


def latest(store: forebay.Store) -> dict[str | None, bytes]:
    return {it.key: it.body for it in store.tail("state", start="earliest", follow=False)}


def offsets(store: forebay.Store) -> list[int]:
    return [it.offset for it in store.tail("state", start="earliest", follow=False)]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_latest_message_of_each_key_stays(tmp_path: Path, codec: str):
    with open_log(tmp_path / "log", compression=codec) as store:
        fill(store)
        before, known = (
            latest(store),
            {it.offset: it.body for it in store.tail("state", start="earliest", follow=False)},
        )
        done = store.compact()
        assert done.partitions == 1 and done.complete
        assert done.messages_read > done.messages_written == 5
        assert done.bytes_read > done.bytes_written > 0
        assert latest(store) == before
        left = offsets(store)
        assert left == sorted(set(left)) and left[-1] == 299 and len(left) < 100
        assert all(store.get("state", queue=0, offset=it).body == known[it] for it in left)
        with pytest.raises(forebay.OffsetOutOfRangeError):
            store.get("state", queue=0, offset=0)
        assert store.read("state", 0, 0).messages[0].offset == left[0]
        assert store.compact("state").partitions == 0, "nothing is dirty"
        assert store.verify().ok
        fill(store, 100)
    with open_log(tmp_path / "log") as store:
        assert store.recovery.clean and store.verify().ok
        assert len(latest(store)) == 5 and offsets(store)[-1] == 399


def test_a_reader_continues_across_a_replacement(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        fill(store)
        with forebay.open(tmp_path / "log", mode="r") as other:
            tails = [it.tail("state", start="earliest", follow=False) for it in (store, other)]
            seen = [[next(tail).offset for _ in range(20)] for tail in tails]
            assert store.compact().messages_written == 5
            for tail, found in zip(tails, seen, strict=True):
                found += [it.offset for it in tail]
                assert found == sorted(set(found)) and found[-1] == 299
            assert offsets(other) == offsets(store)


def test_a_topic_that_is_compacted_needs_keys(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        store.send("other", b"no key")
        with pytest.raises(forebay.InvalidOptionError, match="must have a key"):
            store.send("state", b"no key")
        producer = store.producer("state")
        with pytest.raises(forebay.InvalidOptionError, match=r"row 1: .*must have a key"):
            producer.send_batch([b"a", b"b"], keys=["a", None])
        assert offsets(store) == []
        with pytest.raises(forebay.InvalidOptionError, match="is not compacted"):
            store.compact("other")
        with pytest.raises(forebay.UnknownTopicError):
            store.compact("none")
        assert store.compact() == store.compact("state")
    with forebay.open(tmp_path / "log", mode="r") as store, pytest.raises(forebay.ReadOnlyError):
        store.compact()
    with forebay.open(":memory:") as memory, pytest.raises(forebay.UnsupportedError):
        memory.compact()


@pytest.mark.parametrize(
    "options",
    [
        {"cleanup_policy": "shrink"},
        {"cleanup_policy": {"state": "shrink"}},
        {"cleanup_policy": 1},
        {"cleanup_policy": {1: "compact"}},
        {"min_cleanable_dirty_ratio": 1.5},
        {"min_cleanable_dirty_ratio": float("nan")},
        {"log_cleaner_dedupe_buffer_size": 1},
        {"max_compaction_lag_ms": 0},
        {"min_compaction_lag_ms": 2, "max_compaction_lag_ms": 1},
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, object]):
    with pytest.raises((forebay.InvalidOptionError, TypeError), match=next(iter(options))):
        open_log(tmp_path / "log", **options)


@pytest.mark.parametrize("option", ["cleanup_policy", "delete_retention_ms"])
def test_a_commit_log_refuses_the_options(tmp_path: Path, option: str):
    value = "compact" if option == "cleanup_policy" else 1
    with pytest.raises(forebay.InvalidOptionError, match="only a partition log"):
        forebay.open(tmp_path / "store", **{option: value})


def test_young_messages_stay(tmp_path: Path):
    with open_log(tmp_path / "log", min_compaction_lag_ms=3_600_000) as store:
        fill(store)
        assert store.compact().partitions == 0
        assert offsets(store) == list(range(300))


def test_a_thread_compacts_what_is_dirty(tmp_path: Path):
    checkpoint = tmp_path / "log" / "cleaner-offset-checkpoint"
    with open_log(tmp_path / "log", log_cleaner_backoff_ms=1) as store:
        fill(store)
        before = latest(store)
        deadline = time.monotonic() + 60
        # The pass writes the checkpoint last. A close before that ends the pass without one.
        while len(offsets(store)) > 100 or not checkpoint.exists():
            assert time.monotonic() < deadline, "no pass of compaction ended"
        assert latest(store) == before
        assert store.verify().ok


def test_progress_is_reported_and_can_stop(tmp_path: Path):
    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        assert done <= total
        raise StopError

    with open_log(tmp_path / "log") as store:
        fill(store)
        with pytest.raises(StopError):
            store.compact(progress=stop)
        assert offsets(store) == list(range(300))
        told: list[tuple[int, int]] = []
        store.compact(progress=lambda *it: told.append(it))
        assert told and told[0][1] > 0

        def again(done: int, total: int) -> None:
            store.compact()

        fill(store)
        with pytest.raises(forebay.BusyError, match="callback of a compaction"):
            store.compact(progress=again)


def test_more_keys_than_memory_take_several_passes(tmp_path: Path):
    with open_log(tmp_path / "log", log_cleaner_dedupe_buffer_size=1024) as store:
        fill(store, 2000, keys=200)
        before = latest(store)
        store.compact()
        assert latest(store) == before
        keys = [it.key for it in store.tail("state", start="earliest", follow=False)]
        # Some of the last segment, which is not complete, have an earlier message.
        assert 200 <= len(keys) < 260


def test_the_verb_compacts_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "log")
    with open_log(tmp_path / "log") as store:
        fill(store)
        store.send("other", b"no key")
        before = latest(store)
    assert main(["compact", path, "state", "--json", "--segment-bytes", "8192"]) == 0
    counts = json.loads(capsys.readouterr().out)["state"]
    assert counts["messages_written"] == 5 and counts["complete"]
    assert main(["compact", path, "state"]) == 0
    assert capsys.readouterr().out.startswith("state: 0 queues, 0 messages in 0 bytes")
    with forebay.open(path, mode="r") as store:
        assert latest(store) == before
    assert main(["compact", path, "none"]) == 1
    with forebay.open(tmp_path / "commits"):
        pass
    assert main(["compact", str(tmp_path / "commits"), "state"]) != 0


def test_messages_without_a_key_are_dropped_only_if_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = str(tmp_path / "log")
    with open_log(tmp_path / "log", cleanup_policy="delete", default_queues=2) as store:
        for number in range(200):
            key = None if number == 57 else f"key {number % 5}"
            for queue in (0, 1):
                keys = [f"key {number % 5}"] if queue == 1 else [] if key is None else [key]
                store.send("state", b"%d " % number * 20, keys=keys, queue=queue)
    assert main(["compact", path, "state"]) == 2
    complaint = capsys.readouterr().err
    assert "message 57 of state-0 has no key" in complaint and "--drop-keyless" in complaint

    def left(queue: int) -> int:
        with forebay.open(path, mode="r") as store:
            found = store.tail("state", start="earliest", follow=False)
            return len([it for it in found if it.queue == queue])

    assert left(0) == 200
    compacted = left(1)
    assert compacted < 100, "the other queue was compacted"
    with open_log(tmp_path / "log") as store:
        with pytest.raises(forebay.InvalidOptionError, match="message 57 of state-0") as caught:
            store.compact("state", drop_keyless=False)
        assert caught.value.name == "drop_keyless"
        store.send("state", b"", key="key 1")
    assert left(0) >= 200
    assert main(["compact", path, "state", "--drop-keyless"]) == 0
    assert left(0) < 100


@pytest.mark.parametrize("policy", ["delete", {"state": "delete"}])
def test_a_store_without_compacted_topics_refuses_to_compact(tmp_path: Path, policy: object):
    with open_log(tmp_path / "log", cleanup_policy=policy) as store:
        fill(store)
        text = "cleanup_policy is .*: no topic is compacted: open the store with cleanup_policy"
        with pytest.raises(forebay.InvalidOptionError, match=text):
            store.compact()


def test_each_call_reports_a_damaged_queue_after_all_others_were_compacted(tmp_path: Path):
    with open_log(tmp_path / "log", cleanup_policy="compact") as store:
        for topic in ("a", "b"):
            producer = store.producer(topic)
            for number in range(300):
                producer.send(b"value %d " % number * 8, key=f"key {number % 5}")
        log = tmp_path / "log" / "a-0" / f"{0:020}.log"
        with log.open("r+b") as file:
            file.seek(16)
            file.write(b"\x77")
        for _ in range(2):
            with pytest.raises(forebay.CorruptError) as caught:
                store.compact()
            assert caught.value.path == str(log)
            assert len(list(store.tail("b", start="earliest", follow=False))) < 100
        assert store.repair().ok
        assert store.compact().partitions == 1


def test_the_verb_compacts_a_directory_of_another_system_if_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kafka.write(tmp_path / "state-0", [[(1, b"key", b"value", [])]])
    assert main(["compact", str(tmp_path), "state"]) == 1
    assert "--adopt" in capsys.readouterr().err
    assert main(["compact", str(tmp_path), "state", "--adopt"]) == 0
