"""Archives of partition logs: what is copied, beside which other work, and how it is read back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import archive_support as support
import pytest
from golden_stores import unpack_partitions
from harness import LONG_S

import forebay
import forebay.archive
from forebay.archive import segments as copying
from forebay.archive.local import LocalFiles

pytest.importorskip("pyarrow")
from pyarrow import fs

SEGMENT = 16 << 10


def open_log(path: Path, **options: object) -> forebay.Store:
    given = {"segment_bytes": SEGMENT, "default_queues": 2, "compression": "zstd", **options}
    return forebay.open(path, engine="partitionlog", **given)  # type: ignore[arg-type]


def fill(store: forebay.Store, count: int = 200, *, topic: str = "orders", first: int = 0) -> None:
    """Send messages that do not shrink, in batches of ten, in turn to each queue."""
    for number in range(first, first + count, 10):
        bodies = [b"%d " % (number + n) + os.urandom(300) for n in range(10)]
        keys = [f"k{(number + n) % 7}" for n in range(10)]
        store.producer(topic, queue=number // 10 % 2).send_batch(bodies, keys=keys)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread of the store does."""
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def rows(store: forebay.Store, topic: str = "orders") -> dict[tuple[int, int], bytes]:
    """Return the bodies of a topic by queue and offset."""
    found = store.tail(topic, start="earliest", follow=False)
    return {(it.queue, it.offset): it.body for it in found}


def archived(target: Path, topic: str = "orders") -> dict[tuple[int, int], bytes]:
    with forebay.open(target, mode="r") as store:
        assert store.engine == "partitionlog"
        assert store.verify().ok
        return rows(store, topic)


def names(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


def test_closed_segments_are_copied_as_kafka_has_them(tmp_path: Path):
    told: list[tuple[int, int]] = []
    log, target = tmp_path / "log", tmp_path / "a" / "b"
    with open_log(log) as store:
        fill(store)
        assert store.roll() is not None
        expected = rows(store)
        done = store.archive(target, progress=lambda *bytes: told.append(bytes))
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        assert (done.recorded, done.retired, done.skipped, done.reason) == (True, 0, 0, None)
        assert told[-1] == (done.bytes, done.bytes)
        again = store.archive(target)
        assert (again.files, again.skipped, again.offsets) == (0, done.files, done.offsets)
        assert again.reason is not None and "already in the archive" in again.reason
    assert archived(target) == expected
    # The segments and their indexes are those of the store, byte for byte.
    ours = support.tree(target)
    theirs = support.tree(log)
    copied = [it for it in ours if it.endswith((".log", ".index", ".timeindex"))]
    assert len(copied) == 3 * done.files
    assert {it: ours[it] for it in copied} == {it: theirs[it] for it in copied}
    assert ours["orders-0/partition.metadata"] == theirs["orders-0/partition.metadata"]
    note = json.loads((log / "forebay.archived").read_bytes())
    assert note["targets"] == {str(target): done.offsets}


def test_what_is_not_complete_is_not_copied(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        done = store.archive(tmp_path / "a")
        assert (done.files, done.offsets) == (0, {})
        assert done.reason is not None and "roll()" in done.reason
        fill(store, 20)
        assert store.archive(tmp_path / "a").files == 0
        fill(store, 100, first=20)
        done = store.archive(tmp_path / "a")
        assert done.files > 0
        found = archived(tmp_path / "a")
        every = rows(store)
        assert found == {place: every[place] for place in found}
        ends = {f"orders-{queue}": offset + 1 for queue, offset in sorted(found)}
        assert done.offsets == ends


def test_a_reader_beside_the_writer_copies_what_the_recovery_point_covers(tmp_path: Path):
    with open_log(tmp_path / "log", index_interval_bytes=512) as store:
        fill(store)
        store.roll()
        fill(store, 40, first=200)
        with forebay.open(tmp_path / "log", mode="r") as reader:
            done = reader.archive(tmp_path / "a")
        assert done.recorded
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        with forebay.open(tmp_path / "log", mode="r") as reader:
            assert reader.archive(tmp_path / "b").offsets == done.offsets
        # The writer makes the same files.
        assert store.archive(tmp_path / "c").offsets == done.offsets
    assert support.tree(tmp_path / "a") == support.tree(tmp_path / "b")
    assert support.tree(tmp_path / "a") == support.tree(tmp_path / "c")


def test_an_archive_goes_on_over_compaction_and_has_no_offset_twice(tmp_path: Path):
    options = {"cleanup_policy": "compact", "log_cleaner_backoff_ms": 3_600_000}
    with open_log(tmp_path / "log", **options) as store:
        fill(store, 100)
        store.roll()
        first = rows(store)
        store.archive(tmp_path / "a")
        fill(store, 100, first=100)
        store.roll()
        store.compact()
        kept = rows(store)
        assert len(kept) < len(first)
        done = store.archive(tmp_path / "a")
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        found = archived(tmp_path / "a")
        # What was archived before the compaction stays; what came after it is as compacted.
        later = {place: body for place, body in kept.items() if place[1] >= 50}
        assert found == first | later
        assert store.archive(tmp_path / "a").files == 0


def test_retention_leaves_a_gap_and_the_archive_goes_on(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        fill(store, 100)
        store.roll()
        store.archive(tmp_path / "a")
        fill(store, 100, first=100)
        store.roll()
        fill(store, 100, first=200)
        store.roll()
        every = rows(store)
        store.delete_before("orders", {0: 100, 1: 100})
        done = store.archive(tmp_path / "a")
        assert done.offsets == {"orders-0": 150, "orders-1": 150}
        found = archived(tmp_path / "a")
        assert found == {place: body for place, body in every.items() if not 50 <= place[1] < 100}


def test_what_is_not_archived_stays_if_asked(tmp_path: Path):
    options = {"retention_bytes": 1, "keep_unarchived": True}
    with open_log(tmp_path / "log", **options) as store:
        fill(store, 100)
        store.roll()
        every = rows(store)
        before = store.topics["orders"].queues[0].min_offset
        store.archive(tmp_path / "a")
        fill(store, 100, first=100)
        store.roll()

        def begins() -> list[int]:
            return [queue.min_offset for queue in store.topics["orders"].queues]

        assert before == 0
        until(lambda: begins() == [50, 50])
        # A second archive has nothing: what it lacks stays.
        note = json.loads((tmp_path / "log" / "forebay.archived").read_bytes())
        note["targets"]["elsewhere"] = {"orders-0": 50}
        del note["crc32"]
        (tmp_path / "log" / "forebay.archived").write_text(json.dumps(note))
        done = store.archive(tmp_path / "a")
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        (tmp_path / "log" / "forebay.archived").write_text("{")
        assert not store.archive(tmp_path / "a").recorded
        until(lambda: any("archives" in it.reason for it in store.damage))
        assert begins() == [50, 50]
    assert archived(tmp_path / "a").items() >= every.items()


def test_what_was_deleted_within_the_first_segment_stays_deleted(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        fill(store, 60)
        store.roll()
        store.delete_before("orders", {0: 13})
        every = rows(store)
        assert (0, 12) not in every and (0, 13) in every
        store.archive(tmp_path / "a")
    text = (tmp_path / "a" / "log-start-offset-checkpoint").read_text()
    assert text == "0\n1\norders 0 13\n"
    assert archived(tmp_path / "a") == every


def test_a_segment_that_goes_while_it_is_copied_is_no_error(tmp_path: Path, monkeypatch):
    with open_log(tmp_path / "log") as store:
        fill(store, 200)
        store.roll()
        every = rows(store)
        plain = copying._forebay.survey_segment
        deleted = []

        def delete_first(asked, segment, after):
            if not deleted:
                deleted.append(segment)
                store.delete_before("orders", {segment.queue: 60})
            return plain(asked, segment, after)

        monkeypatch.setattr(copying._forebay, "survey_segment", delete_first)
        done = store.archive(tmp_path / "a")
        assert done.retired >= 1
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        found = archived(tmp_path / "a")
        assert {it for it in every if it not in found} == {(0, offset) for offset in range(60)}
        # One that is still listed and has no file is an error.
        fill(store, 100, first=200)
        store.roll()
        segments = copying._forebay.sealed_segments(store, "orders", 1)
        os.unlink(segments[-1].path)
        with pytest.raises(FileNotFoundError):
            store.archive(tmp_path / "a")


def test_an_archive_of_another_store_or_kind_is_refused(tmp_path: Path):
    for name in ("one", "other"):
        with open_log(tmp_path / name) as store:
            fill(store, 40)
            store.roll()
            if name == "one":
                store.archive(tmp_path / "a")
            else:
                with pytest.raises(forebay.StoreExistsError, match="different ids"):
                    store.archive(tmp_path / "a")
    with forebay.open(tmp_path / "commitlog") as store:
        with pytest.raises(forebay.NotAStoreError, match="archive of a partitionlog store"):
            store.archive(tmp_path / "a")
        store.archive(tmp_path / "c")
    with (
        open_log(tmp_path / "one") as store,
        pytest.raises(forebay.NotAStoreError, match="archive of a commitlog store"),
    ):
        store.archive(tmp_path / "c")


@pytest.mark.parametrize("kind", ["pipe", "folder", "long"])
def test_small_files_of_another_kind_are_neither_waited_for_nor_read_whole(
    tmp_path: Path, kind: str
) -> None:
    def replace(file: Path) -> None:
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "folder":
            file.mkdir()
        else:
            file.write_bytes(b"x")
            os.truncate(file, 1 << 40)

    with open_log(tmp_path / "log") as store:
        fill(store, 40)
        store.roll()
        store.archive(tmp_path / "a")
        replace(tmp_path / "log" / "forebay.archived")
        assert not store.archive(tmp_path / "a").recorded
        for name in ("log/orders-0/partition.metadata", "a/forebay.archive"):
            kept = (tmp_path / name).read_bytes()
            replace(tmp_path / name)
            errors = (forebay.errors.DiskError, forebay.NotAStoreError)
            with pytest.raises(errors) as raised:
                store.archive(tmp_path / "a")
            assert raised.value.path == str(tmp_path / name)
            if kind == "folder":
                (tmp_path / name).rmdir()
            else:
                (tmp_path / name).unlink()
            (tmp_path / name).write_bytes(kept)
        assert store.archive(tmp_path / "a").reason is not None


def test_a_table_without_a_queue_is_corrupt(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as store:
        fill(store, 40)
        store.roll()
        store.archive(tmp_path / "a")
        *_, table = sorted((tmp_path / "a" / "orders-0").glob("*.blocks"))
        length = int.from_bytes(table.read_bytes()[24:32], "big")
        rest = struct.pack(">QQ6I", 0, length, 0, 0, 1, 0, 0, 0)
        rest += struct.pack(">IIIIqq", length, 0, 0, 0, 2**63 - 1, -(2**63))
        head = struct.pack(">8sII", b"FBBLOCKS", 1, zlib.crc32(rest))
        table.write_bytes(head + rest)
        with pytest.raises(forebay.CorruptError, match="no queue"):
            store.archive(tmp_path / "a")


@pytest.mark.parametrize("after", ["same bytes", "fewer", "more", "compacted", "elsewhere"])
def test_an_archive_of_what_a_restored_store_was_is_refused(tmp_path: Path, after: str) -> None:
    # A store is restored from a backup and goes on: it gives offsets again that its archive has.
    log, target, other = tmp_path / "log", str(tmp_path / "a"), None
    if after == "elsewhere":
        (tmp_path / "fs").mkdir()
        other = fs.SubTreeFileSystem(str(tmp_path / "fs"), fs.LocalFileSystem())
        target = "a"
    with open_log(log) as store:
        fill(store, 100)
    shutil.copytree(log, tmp_path / "backup")
    with open_log(log) as store:
        fill(store, 100, first=100)
        store.roll()
        store.archive(target, filesystem=other)
    note = (log / "forebay.archived").read_bytes()
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "backup", log)
    (log / "forebay.archived").write_bytes(note)
    archive = Path(target) if other is None else tmp_path / "fs" / "a"
    before = support.tree(archive)
    options = {"cleanup_policy": "compact", "log_cleaner_backoff_ms": 3_600_000}
    with open_log(log, **(options if after == "compacted" else {})) as store:
        fill(store, {"fewer": 60, "more": 400}.get(after, 100), first=100)
        store.roll()
        if after == "compacted":
            store.compact()
        every = rows(store)
        reason = "restored from a backup"
        for _ in range(2):
            with pytest.raises(forebay.StoreExistsError, match=reason) as raised:
                store.archive(target, filesystem=other)
            assert ("the queue ends before 80" in str(raised.value)) == (after == "fewer")
        assert rows(store) == every
    assert support.tree(archive) == before
    # Retention waits, though it was recorded that this archive has the messages.
    found = json.loads((log / "forebay.archived").read_bytes())
    assert list(found["targets"].values()) == [{}]


def test_an_archive_is_compared_with_what_compaction_left(tmp_path: Path) -> None:
    options = {"cleanup_policy": "compact", "log_cleaner_backoff_ms": 3_600_000}
    with open_log(tmp_path / "log", **options) as store:
        fill(store, 200)
        store.roll()
        first = store.archive(tmp_path / "a")
        # Nothing that the newest segments of the archive have is left in the store.
        fill(store, 400, first=200)
        store.roll()
        store.compact()
        assert min(offset for _, offset in rows(store)) >= 100
        done = store.archive(tmp_path / "a")
        assert done.offsets == {"orders-0": 300, "orders-1": 300} != first.offsets
        # Of the newest segments, only some messages are left.
        fill(store, 4, first=600)
        store.roll()
        store.compact()
        assert store.archive(tmp_path / "a").files > 0
        assert archived(tmp_path / "a").items() >= rows(store).items()


@pytest.mark.parametrize("kept", [".index", ".log", "partition.metadata"])
def test_an_interrupted_copy_is_completed(tmp_path: Path, monkeypatch, kept: str):
    """Writing stops after the first file with this ending."""

    class Died(BaseException):
        pass

    plain = LocalFiles._put

    def die(self, name, fill, length):
        plain(self, name, fill, length)
        if name.endswith(kept):
            raise Died

    with open_log(tmp_path / "log") as store:
        fill(store)
        store.roll()
        with monkeypatch.context() as patched:
            patched.setattr(LocalFiles, "_put", die)
            with pytest.raises(Died):
                store.archive(tmp_path / "a")
        done = store.archive(tmp_path / "a")
        assert done.offsets == {"orders-0": 100, "orders-1": 100}
        assert archived(tmp_path / "a") == rows(store)
        store.archive(tmp_path / "b")
    assert support.tree(tmp_path / "a") == support.tree(tmp_path / "b")


KILLED = """
import os, signal, sys
import forebay
from forebay.archive.local import LocalFiles

count = int(sys.argv[3])
plain = os.fsync

def sync(file):
    global count
    count -= 1
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    plain(file)

os.fsync = sync
with forebay.open(sys.argv[1], mode="r") as store:
    store.archive(sys.argv[2])
"""


def test_an_archiver_that_is_killed_leaves_a_valid_archive(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        fill(store, 100)
        store.roll()
        every = rows(store)
    for count in (1, 4, 9, 17, 30):
        target = tmp_path / f"a{count}"
        command = [sys.executable, "-c", KILLED, tmp_path / "log", target, str(count)]
        done = subprocess.run(command, check=False)
        assert done.returncode == -signal.SIGKILL
        if any(target.glob("*/*.log")):
            found = archived(target)
            assert found.items() <= every.items()
        with forebay.open(tmp_path / "log", mode="r") as store:
            store.archive(target)
        assert archived(target) == every


def test_an_archive_becomes_a_store(tmp_path: Path):
    with open_log(tmp_path / "log") as store:
        fill(store, 100)
        store.roll()
        store.archive(tmp_path / "a")
        every = rows(store)
    with pytest.raises(forebay.ForeignStoreError):
        forebay.open(tmp_path / "a")
    with forebay.open(tmp_path / "a", adopt=True) as store:
        assert rows(store) == every
        assert store.send("orders", b"next", queue=0).offset == 50


def test_directories_that_kafka_left_are_archived(tmp_path: Path):
    golden = unpack_partitions(tmp_path / "golden")
    with forebay.open(golden, mode="r") as store:
        points = {}
        for name in store.topics:
            segments = sorted((golden / f"{name}-0").glob("*.log"))
            if len(segments) > 1:
                points[name] = int(segments[-1].stem)
        assert points
    lines = [f"{name} 0 {point}" for name, point in points.items()]
    text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
    (golden / "recovery-point-offset-checkpoint").write_text(text)
    with forebay.open(golden, mode="r") as store:
        done = store.archive(tmp_path / "a")
        assert done.offsets == {f"{name}-0": point for name, point in points.items()}
        assert not done.recorded
        for name, point in points.items():
            expected = {
                place: body for place, body in rows(store, name).items() if place[1] < point
            }
            assert archived(tmp_path / "a", name) == expected


COLUMNS = ["topic", "queue", "offset", "position", "store_timestamp", "keys", "tags", "body"]


def scanned(source: forebay.Store | forebay.archive.Archive, **limits: object) -> list[object]:
    return support.rows(source.scan("orders", columns=COLUMNS, **limits))  # type: ignore[arg-type]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Return a closed store with complete segments of two queues."""
    with open_log(tmp_path / "log", segment_bytes=2 << 20) as store:
        for number in range(100):
            bodies = [b"%d " % n + os.urandom(1000) for n in range(100)]
            keys = [f"key-{number}-{n}" for n in range(100)]
            store.producer("orders", queue=number % 2).send_batch(bodies, keys=keys, tags="paid")
        store.roll()
    return tmp_path / "log"


@pytest.mark.parametrize("place", ["directory", "elsewhere"])
def test_an_archive_is_read_by_blocks(filled: Path, tmp_path: Path, place: str):
    other = None
    if place == "elsewhere":
        (tmp_path / "fs").mkdir()
        other = fs.SubTreeFileSystem(str(tmp_path / "fs"), fs.LocalFileSystem())
    target = str(tmp_path / "a") if other is None else "a"
    with forebay.open(filled, mode="r") as store:
        done = store.archive(target, filesystem=other)
        assert store.archive(target, filesystem=other).skipped == done.files
        archive = forebay.archive.open(target, filesystem=other)
        assert archive.engine == "partitionlog"
        assert [len(table.blocks) for table in archive._tables] > [1]
        assert archive.damage == archive.verify() == []
        assert archive.topics["orders"].queues == [
            forebay.archive.ArchivedQueue(0, 0, 5000),
            forebay.archive.ArchivedQueue(1, 0, 5000),
        ]
        assert scanned(archive) == scanned(store)
        limits = {"queues": [1], "start": {1: 170}, "end": {1: 4000}}
        assert scanned(archive, **limits) == scanned(store, **limits)
        assert scanned(archive, key="key-7-5") == scanned(store, key="key-7-5") != []
        time = store.get("orders", 1, 2500).store_timestamp
        for moment in (0, time, time + 1, 1 << 60):
            assert archive.offset_at("orders", 1, moment) == store.offset_at("orders", 1, moment)


def test_damage_and_gaps_are_reported(filled: Path, tmp_path: Path):
    with forebay.open(filled, mode="r") as store:
        store.archive(tmp_path / "a")
        expected = scanned(store)
    logs = sorted((tmp_path / "a").glob("orders-0/*.log"))
    assert len(logs) > 2
    with open(logs[0], "r+b") as file:
        file.seek(1 << 20)
        file.write(os.urandom(8))
    archive = forebay.archive.open(tmp_path / "a")
    assert [it.path for it in archive.verify()] == [str(logs[0])]
    scan = archive.scan("orders", columns=COLUMNS)
    lost = len(expected) - len(support.rows(scan))
    assert lost == 100
    assert {str(it.path) for it in scan.damage} == {str(logs[0])}
    for ending in ("log", "blocks"):
        for file in (tmp_path / "a" / "orders-0").glob(f"*{logs[1].stem}*{ending}"):
            file.unlink()
    (gap,) = forebay.archive.open(tmp_path / "a").damage[:1]
    assert f"the offsets {int(logs[1].stem)} to " in gap.reason
    (tmp_path / "a" / "orders-1" / copying.table_of(0)).write_bytes(b"FBBLOCKS")
    with pytest.raises(forebay.CorruptError):
        forebay.archive.open(tmp_path / "a")
