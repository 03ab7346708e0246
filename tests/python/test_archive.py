"""Archives in directories: what is copied, how it is read back, and what a crash leaves."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import archive_support as support
import pytest
from golden_stores import ROCKETMQ, unpack

import forebay
import forebay.archive
from forebay.archive.local import LocalFiles
from forebay.archive.parts import Range
from forebay.archive.scan import milliseconds_of
from forebay.times import milliseconds

pa = pytest.importorskip("pyarrow")
fs = pytest.importorskip("pyarrow.fs")

NAMES = [f"{support.FILE * number:020}" for number in range(3)]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a closed store with two sealed log files and a third."""
    path = tmp_path_factory.mktemp("archive") / "events"
    with support.small(path) as store:
        support.fill(store, 2)
    return path


@pytest.fixture
def store(closed: Path) -> Iterator[forebay.Store]:
    """Open that store read-only."""
    with forebay.open(closed, mode="r") as store:
        yield store


@pytest.fixture
def target(store: forebay.Store, tmp_path: Path) -> Path:
    """Return an archive of the store."""
    store.archive(tmp_path / "archive")
    return tmp_path / "archive"


def test_sealed_files_are_copied_byte_for_byte_and_the_last_one_is_not(closed, store, tmp_path):
    told = []
    target = tmp_path / "a" / "b"
    done = store.archive(target, progress=lambda *bytes: told.append(bytes))
    assert done == forebay.archive.Archived(
        str(target), 2, 2 * support.FILE, 0, 2 * support.FILE, True
    )
    assert told[-1] == (2 * support.FILE, 2 * support.FILE)
    for name in NAMES[:2]:
        log = Path("commitlog") / name
        assert (target / log).read_bytes() == (closed / log).read_bytes()
    files = [f"{folder}/{name}" for folder in ("commitlog", "keys", "blocks") for name in NAMES[:2]]
    assert sorted(support.tree(target)) == sorted([*files, "forebay.archive"])
    assert (
        json.loads((closed / "forebay.archived").read_bytes())["targets"][str(target)]
        == done.position
    )


def test_what_was_archived_is_read_back(store, target):
    with forebay.archive.open(target) as archive:
        scan = archive.scan(columns=support.COLUMNS)
        assert support.rows(scan) == support.below(store, archive)
        assert scan.damage == archive.damage == archive.verify() == []
        queue = archive.topics["orders"].queues[1]
        limits = {
            "queues": [1],
            "start": {1: 17},
            "end": {1: queue.max_offset - 40},
            "tags": "paid",
        }
        scan = archive.scan("orders", columns=support.COLUMNS, **limits)
        assert support.rows(scan) == support.rows(
            store.scan("orders", columns=support.COLUMNS, **limits)
        )
        # A scan can be read repeatedly, also as views, and in small batches.
        scan = archive.scan("bills", body_type="binary_view", columns=["offset"], batch_rows=7)
        assert support.rows(scan) == support.rows(scan) != []


def test_an_error_of_an_archive_crosses_arrow_with_its_kind_and_text(target, monkeypatch):
    def read(*_):
        raise ConnectionError("reset by peer")

    with forebay.archive.open(target) as archive:
        monkeypatch.setattr(LocalFiles, "read", read)
        with pytest.raises(OSError, match="ConnectionError: reset by peer"):
            pa.table(archive.scan())


def test_messages_of_a_live_store_are_archived_as_its_files_fill(tmp_path):
    target = tmp_path / "archive"
    with support.small(tmp_path / "events") as store:
        assert store.archive(target).files == 0
        assert forebay.archive.open(target).topics == {}
        before = {}
        for round in range(1, 4):
            support.fill(store, 1, seed=round)
            beside = forebay.open(tmp_path / "events", mode="r")
            done = (store if round % 2 else beside).archive(target)
            beside.close()
            assert done.skipped == len(before) // 3 and done.files >= 1
            assert done.position == len(forebay.archive.open(target)._tables) * support.FILE
            after = support.tree(target)
            assert before.items() <= after.items()
            before = {name: after[name] for name in after if name != "forebay.archive"}
        archive = forebay.archive.open(target)
        assert support.rows(archive.scan(columns=support.COLUMNS)) == support.below(store, archive)
        assert store.archive(target).files == 0


def test_two_archivers_write_the_same_files(store, target, tmp_path):
    store.archive(tmp_path / "other")
    assert support.tree(tmp_path / "other") == support.tree(target)


def test_offset_at_gives_the_same_offsets_as_the_store(store, target):
    archive = forebay.archive.open(target)
    times = [row[4] for row in support.below(store, archive)]
    whole = [min(times), max(times)]
    for topic in archive.topics.values():
        for queue in topic.queues:
            for time in [*whole, *times[:: len(times) // 20], datetime(2020, 1, 1, tzinfo=UTC)]:
                offset = store.offset_at(topic.name, queue.id, time)
                expected = min(offset, queue.max_offset)
                assert archive.offset_at(topic.name, queue.id, time) == expected
            assert archive.offset_at(topic.name, queue.id, 1 << 60) == queue.max_offset
    half = sorted(times)[len(times) // 2]
    scan = archive.scan("orders", start=half, columns=support.COLUMNS)
    ends = {queue.id: queue.max_offset for queue in archive.topics["orders"].queues}
    starts = {queue: archive.offset_at("orders", queue, half) for queue in ends}
    same = store.scan("orders", start=starts, end=ends, columns=support.COLUMNS)
    assert support.rows(scan) == support.rows(same)


def test_a_key_is_found_without_reading_the_log_files(store, target, monkeypatch):
    archive = forebay.archive.open(target)
    read = 0
    plain = LocalFiles.read

    def counted(self, name, start=0, length=None):
        nonlocal read
        data = plain(self, name, start, length)
        read += len(data)
        return data

    monkeypatch.setattr(LocalFiles, "read", counted)
    scan = archive.scan("orders", key="key-1-1234", columns=support.COLUMNS)
    found = support.rows(scan)
    assert found == support.rows(store.scan("orders", key="key-1-1234", columns=support.COLUMNS))
    assert len(found) == 1 and 0 < read < 2 << 20
    read = 0
    assert support.rows(archive.scan("orders", key="no such key")) == []
    assert read < 1 << 20


def test_parts_for_tasks_hold_every_offset_once_and_follow_one_another(target):
    archive = forebay.archive.open(target)
    wanted = [
        Range(topic.name, queue.id, queue.min_offset + 3, queue.max_offset)
        for topic in archive.topics.values()
        for queue in topic.queues
    ]
    pieces = archive._segments(wanted)
    assert len(pieces) > 20
    joined = {}
    for (topic, queue, start, end), size in pieces:
        assert joined.get((topic, queue), start) == start < end and size > 0
        joined[topic, queue] = end
    assert joined == {(topic, queue): end for topic, queue, _, end in wanted}
    assert {at: start for *at, start, _ in map(list, wanted) for at in [tuple(at)]} == {
        at: min(p[2] for p, _ in pieces if p[:2] == at) for at in joined
    }
    # Offsets that no log file holds belong to the last part, whose reader reports them.
    beyond = archive._segments([Range("orders", 0, 0, 1 << 40)])
    assert sum(end - start for (_, _, start, end), _ in beyond) == 1 << 40
    # A tenth of the parts needs only a little more than a tenth of the blocks.
    tenth = [piece for piece, _ in pieces[: len(pieces) // 10]]
    blocks = [len(table.select(tenth)) for table in archive._tables]
    assert sum(blocks) <= 3 and len(archive._tables[0].blocks) >= 4


def test_the_log_files_of_an_archive_can_be_opened_as_a_store(store, target, tmp_path):
    restored = tmp_path / "restored"
    (restored / "commitlog").mkdir(parents=True)
    for name in NAMES[:2]:
        (restored / "commitlog" / name).write_bytes((target / "commitlog" / name).read_bytes())
    archive = forebay.archive.open(target)
    with forebay.open(restored, adopt=True) as again:
        assert support.rows(again.scan(columns=support.COLUMNS)) == support.below(store, archive)
        assert (
            again.send("bills", b"on", queue=3).offset
            == archive.topics["bills"].queues[-1].max_offset
        )


@pytest.mark.parametrize("refused", [[], ["copy_file_range"], ["copy_file_range", "sendfile"]])
def test_the_kernel_copies_where_it_can(closed, store, tmp_path, monkeypatch, refused):
    copied = dict.fromkeys(["copy_file_range", "sendfile"], 0)
    for name in copied:
        plain = getattr(os, name)

        def call(*arguments, name=name, plain=plain):
            if name in refused:
                raise OSError(errno.EXDEV, "not between these")
            some = plain(*arguments)
            copied[name] += some
            return some

        monkeypatch.setattr(os, name, call)
    store.archive(tmp_path / "archive")
    all_of_it = 2 * support.FILE
    first = [name for name in copied if name not in refused][:1]
    assert copied == {name: all_of_it if [name] == first else 0 for name in copied}
    for name in NAMES[:2]:
        log = Path("commitlog") / name
        assert (tmp_path / "archive" / log).read_bytes() == (closed / log).read_bytes()


@pytest.mark.parametrize("call", ["copy_file_range", "write", "rename", "mkdir"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, forebay.DiskFullError),
        (errno.EDQUOT, forebay.DiskFullError),
        (errno.EACCES, forebay.errors.DiskPermissionError),
        (errno.EIO, forebay.errors.DiskError),
    ],
)
def test_a_refused_write_is_reported_with_the_path(store, target, monkeypatch, call, number, kind):
    for path in target.glob("blocks/*1*"):
        path.unlink()
    (target / "commitlog" / NAMES[1]).unlink()
    before = support.tree(target)

    def refused(*arguments, **named):
        raise OSError(number, os.strerror(number))

    where = target / "deeper" if call == "mkdir" else target
    # If the kernel reports EIO, the file is copied by read and write.
    calls = [call, "sendfile", "write"] if call == "copy_file_range" else [call]
    with monkeypatch.context() as patch:
        for name in calls:
            patch.setattr(os, name, refused)
        with pytest.raises(kind) as raised:
            store.archive(where)
    error = raised.value
    assert type(error) is kind and error.errno == number
    assert Path(error.path).is_relative_to(target) and error.path in str(error)
    if kind is forebay.DiskFullError:
        assert error.needed > 0 and error.free > 0
    after = support.tree(target)
    assert before.items() <= after.items() and not [name for name in after if ".part" in name]
    store.archive(target)
    assert forebay.archive.open(target).verify() == []


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_an_unreadable_log_file_is_reported_with_its_path(
    closed, store, tmp_path, monkeypatch, kind
):
    filesystem = None
    if kind == "remote":
        filesystem = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    def refused(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("copy_file_range", "sendfile", "read"):
        monkeypatch.setattr(os, name, refused)
    with pytest.raises(forebay.errors.DiskError, match="cannot read") as raised:
        store.archive(tmp_path / "archive" if kind == "local" else "archive", filesystem=filesystem)
    assert raised.value.errno == errno.EIO
    assert raised.value.path == str(closed / "commitlog" / NAMES[0])
    assert not list(tmp_path.glob("archive/commitlog/*"))


def test_a_file_size_limit_is_reported_with_the_path(store, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(forebay.errors.DiskError) as raised:
            store.archive(tmp_path / "archive")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log = tmp_path / "archive" / "commitlog" / NAMES[0]
    assert (raised.value.errno, raised.value.path) == (errno.EFBIG, str(log))
    assert not log.exists()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSPC, errno.ENOENT])
def test_an_exception_from_progress_is_not_reported_as_a_file_error(store, tmp_path, number):
    stop = OSError(number, "the terminal is gone")

    def progress(done, total):
        raise stop

    with pytest.raises(OSError, match="terminal") as raised:
        store.archive(tmp_path / "archive", progress=progress)
    assert raised.value is stop


def test_an_archive_is_durable_before_the_store_records_it(
    closed: Path, store: forebay.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "above" / "archive"
    steps: list[tuple[str, str, int | str]] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        steps.append(("fsync", path, os.fstat(file).st_size))
        fsync(file)

    def noted_rename(source: Path, name: Path) -> None:
        steps.append(("rename", str(source), str(name)))
        rename(source, name)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    monkeypatch.setattr(os, "replace", noted_rename)
    store.archive(target)

    renamed = {step[2]: number for number, step in enumerate(steps) if step[0] == "rename"}
    note = str(closed / "forebay.archived")
    files = [str(path) for path in target.rglob("*") if path.is_file()]
    assert set(files) | {note} == set(renamed)
    last = renamed[note]
    assert max(renamed.values()) == last
    for name, number in renamed.items():
        # All bytes are durable before the name, and the name before the record in the store.
        whole = ("fsync", steps[number][1], os.stat(name).st_size)
        assert whole in steps[:number], name
        until = None if name == note else last
        named = [path for kind, path, _ in steps[number:until] if kind == "fsync"]
        assert os.path.dirname(name) in named, name
    synced = {path for kind, path, _ in steps[:last] if kind == "fsync"}
    made = [target.parent, target, *(path for path in target.iterdir() if path.is_dir())]
    assert {str(path.parent) for path in made} <= synced


CHILD = """
import os, signal, sys
import forebay
count, store, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
calls = 0
def deadly(name):
    plain = getattr(os, name)
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arguments, **named)
    setattr(os, name, call)
for name in ("copy_file_range", "write", "rename", "fsync"):
    deadly(name)
with forebay.open(store, mode="r") as store:
    store.archive(target)
"""


def test_an_interrupted_run_leaves_an_archive_that_the_next_run_completes(closed, store, tmp_path):
    whole = tmp_path / "whole"
    store.archive(whole)
    note = closed / "forebay.archived"
    lives = 0
    for count in range(1, 1000, 7):
        target = tmp_path / f"died-{count}"
        arguments = [sys.executable, "-c", CHILD, str(count), str(closed), str(target)]
        child = subprocess.run(arguments, check=False)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        lives += 1
        json.loads(note.read_bytes())
        if (target / "forebay.archive").exists():
            with forebay.archive.open(target) as archive:
                assert archive.verify() == []
        store.archive(target)
        assert support.tree(target) == support.tree(whole)
    assert lives > 5


def test_an_archive_of_another_log_is_refused(store, target, tmp_path):
    with support.small(tmp_path / "other") as other:
        support.fill(other, 1, seed=7)
        with pytest.raises(FileExistsError, match="belongs to another store") as raised:
            other.archive(target)
        assert raised.value.path == str(target / "commitlog" / NAMES[0])
    os.truncate(target / "commitlog" / NAMES[1], 100)
    with pytest.raises(forebay.CorruptError, match="has 100 bytes") as raised:
        store.archive(target)
    assert raised.value.path == str(target / "commitlog" / NAMES[1])
    assert raised.value.position == support.FILE
    assert (target / "commitlog" / NAMES[1]).stat().st_size == 100
    (target / "commitlog" / NAMES[1]).unlink()
    with pytest.raises(forebay.CorruptError, match="is missing"):
        store.archive(target)


def test_an_archive_is_neither_within_the_store_nor_around_it(closed, store, tmp_path):
    files = set(closed.parent.rglob("*"))
    for target, rule in [
        (closed / "sub", "must not be within the store"),
        (f"file://{closed}/sub", "must not be within the store"),
        (closed.parent, "must not be a directory that contains the store"),
    ]:
        with pytest.raises(forebay.InvalidOptionError, match=f"target {rule}"):
            store.archive(target)
    with pytest.raises(forebay.InvalidOptionError, match="within the store"):
        store.archive(closed / "sub", filesystem=fs.LocalFileSystem())
    assert set(closed.parent.rglob("*")) == files


def test_a_directory_that_is_not_an_archive_is_recognised(store, closed, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, closed):
        with pytest.raises(forebay.NotAStoreError, match="empty directory"):
            store.archive(path)
        with pytest.raises(forebay.NotAStoreError, match="not an archive"):
            forebay.archive.open(path)
    with pytest.raises(forebay.StoreNotFoundError):
        forebay.archive.open(tmp_path / "nothing")
    target = tmp_path / "archive"
    store.archive(target)
    for text, error in (
        ("", forebay.NotAStoreError),
        ("[1]", forebay.NotAStoreError),
        ('{"format":"other","version":1}', forebay.NotAStoreError),
        ('{"format":"forebay.archive","version":2}', forebay.UnsupportedError),
    ):
        (target / "forebay.archive").write_text(text)
        with pytest.raises(error):
            forebay.archive.open(target)
        with pytest.raises(error):
            store.archive(target)
    with pytest.raises(forebay.UnsupportedError), forebay.open(":memory:") as memory:
        memory.archive(tmp_path / "m")
    with pytest.raises(forebay.InvalidOptionError, match="nosuch"):
        store.archive("nosuch://bucket/prefix")
    with pytest.raises(forebay.InvalidOptionError, match="filesystem"):
        store.archive("bucket", filesystem=3)


NAIVE = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "nosuch"},
        {"topic": ["orders", "nosuch"]},
        {"topic": ["orders", "orders"]},
        {"topic": []},
        {"topic": 5},
        {"topic": b"orders"},
        {"queues": [9]},
        {"queues": [0, 0]},
        {"queues": [-1]},
        {"queues": ["a"]},
        {"queues": 3},
        {"start": {9: 0}},
        {"end": {9: 0}},
        {"start": {"a": 1}},
        {"start": {0: -1}},
        {"end": {0: -1}},
        {"start": {0: 1.5}},
        {"start": {0: 1 << 40}},
        {"start": {0: 1 << 70}},
        {"start": "now"},
        {"end": "foo"},
        {"start": 5},
        {"end": [(0, 1)]},
        {"start": NAIVE},
        {"end": NAIVE},
        {"key": ""},
        {"key": 5},
        {"tags": 5},
        {"tags": b"paid"},
        {"columns": ["nosuch"]},
        {"columns": ["body", "body"]},
        {"columns": 5},
        {"batch_rows": 0},
        {"batch_bytes": "a"},
        {"body_type": "text"},
        {"verify": 3},
    ],
    ids=str,
)
def test_bad_arguments_of_a_scan_raise_the_same_errors_as_for_a_store(store, target, arguments):
    arguments = {"topic": "orders", **arguments}
    with pytest.raises(Exception) as expected:  # noqa: PT011
        store.scan(**arguments).__arrow_c_stream__()
    with pytest.raises(expected.type) as raised:
        # Raised by the call itself, not in the stream, where pyarrow would wrap it.
        forebay.archive.open(target).scan(**arguments)
    for name in ("name", "topic", "queue", "offset", "min_offset", "value", "reason"):
        assert getattr(raised.value, name, None) == getattr(expected.value, name, None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": b"key-1-777"},
        {"tags": [b"paid"]},
        {"topic": [b"orders"]},
        {"columns": "body"},
        {"start": None, "end": None},
        {"start": {0: 5}, "end": {0: 2, 1: 1 << 70}},
        {"queues": [0], "start": {1: 3}},
        {"topic": None, "queues": [1, 9]},
        {"topic": None, "start": {9: 3}},
        {"queues": []},
    ],
    ids=str,
)
def test_a_scan_accepts_the_arguments_that_a_store_accepts(store, target, arguments):
    archive = forebay.archive.open(target)
    arguments = {"topic": "orders", "columns": support.COLUMNS, **arguments}
    expected = support.rows(store.scan(**arguments))
    scan = archive.scan(**arguments)
    if arguments["columns"] == "body":
        archived = support.below(store, archive)
        assert support.rows(scan) == sorted((row[-1],) for row in archived if row[0] == "orders")
        return
    ends = {
        (topic.name, queue.id): queue.max_offset
        for topic in archive.topics.values()
        for queue in topic.queues
    }
    expected = [row for row in expected if row[2] < ends.get(row[:2], 0)]
    assert support.rows(scan) == support.rows(scan) == expected
    assert (expected == []) == (arguments.get("queues") == [])


def test_arguments_that_are_iterated_once_serve_every_stream_of_a_scan(target):
    archive = forebay.archive.open(target)
    lists = {"topic": ["orders"], "queues": [1, 2], "columns": support.COLUMNS, "tags": ["paid"]}
    expected = support.rows(archive.scan(**lists))
    scan = archive.scan(**{name: iter(value) for name, value in lists.items()})
    assert support.rows(scan) == support.rows(scan) == expected != []


@pytest.mark.parametrize(
    "arguments",
    [
        ("orders", 0, "x"),
        ("orders", 0, True),
        ("orders", 0, 1.5),
        ("orders", 0, None),
        ("orders", 0, NAIVE),
        ("orders", "a", 1),
        ("orders", -1, 1),
        ("orders", 9, 1),
        ("orders", 1 << 40, 1),
        ("nosuch", 0, 1),
        (5, 0, 1),
    ],
    ids=str,
)
def test_bad_arguments_of_offset_at_raise_the_same_errors_as_for_a_store(store, target, arguments):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        store.offset_at(*arguments)
    with pytest.raises(expected.type) as raised:
        forebay.archive.open(target).offset_at(*arguments)
    for name in ("name", "topic", "queue", "value", "reason"):
        assert getattr(raised.value, name, None) == getattr(expected.value, name, None)


def test_times_are_exact_whatever_a_float_holds():
    # Converted through a float, it became the following millisecond.
    assert milliseconds_of(datetime(1970, 1, 4, 1, 51, 50, 367000, UTC)) == 265910367
    assert milliseconds_of(datetime(9999, 1, 2, 7, 36, 54, 302001, UTC)) == 253370878614303
    assert (milliseconds_of(1 << 70), milliseconds_of(-1 << 70)) == ((1 << 63) - 1, -1 << 63)
    for time, around in (
        (datetime(2026, 1, 1, 0, 0, 0, 1000, UTC), (1767225600001, 1767225600001)),
        (datetime(2026, 1, 1, 0, 0, 0, 1001, UTC), (1767225600001, 1767225600002)),
        (datetime(9999, 12, 31, 23, 59, 59, 999001, UTC), (253402300799999, 253402300800000)),
        (datetime(1, 1, 1, 0, 0, 0, 1, UTC), (-62135596800000, -62135596799999)),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), (-1, 0)),
    ):
        assert milliseconds(time) == around


def test_damage_costs_only_the_messages_that_it_touches_and_is_reported(store, target):
    archive = forebay.archive.open(target)
    every = support.rows(archive.scan(columns=support.COLUMNS))
    victim = next(row for row in every if row[3] > 1 << 20 and len(row[7]) > 500)
    with open(target / "commitlog" / NAMES[0], "r+b") as log:
        log.seek(victim[3] + 300)
        byte = log.read(1)[0]
        log.seek(victim[3] + 300)
        log.write(bytes([byte ^ 1]))
    scan = archive.scan(columns=support.COLUMNS)
    assert support.rows(scan) == [row for row in every if row != victim]
    places = {(damage.path, damage.position) for damage in scan.damage}
    assert (str(target / "commitlog" / NAMES[0]), victim[3]) in places
    (found,) = archive.verify()
    assert found.position <= victim[3] < found.position + found.length
    # One log file is truncated, and one is missing.
    os.truncate(target / "commitlog" / NAMES[1], 1 << 20)
    scan = archive.scan(columns=support.COLUMNS)
    half = support.rows(scan)
    assert half == [row for row in every if row in half and row != victim]
    assert any(damage.reason == "the log file ends here" for damage in scan.damage)
    (target / "commitlog" / NAMES[0]).unlink()
    scan = archive.scan(columns=support.COLUMNS)
    assert support.rows(scan) == [row for row in half if row[3] >= support.FILE]
    assert scan.damage and archive.verify()


def test_damaged_and_missing_tables(store, target, tmp_path):
    keys = target / "keys" / NAMES[0]
    keys.write_bytes(bytes(keys.stat().st_size))
    archive = forebay.archive.open(target)
    found = archive.scan("orders", key="key-1-1234", columns=support.COLUMNS)
    # The key table is only a hint; it is not trusted.
    assert len(support.rows(found)) == 1
    keys.unlink()
    assert len(support.rows(found)) == 1
    blocks = target / "blocks" / NAMES[0]
    data = bytearray(blocks.read_bytes())
    data[60] ^= 1
    blocks.write_bytes(data)
    with pytest.raises(forebay.CorruptError, match="checksum") as raised:
        forebay.archive.open(target)
    assert raised.value.path == str(blocks)
    # Without its table a log file counts as not archived, and is archived again.
    blocks.unlink()
    assert next(iter(forebay.archive.open(target)._tables)).start == support.FILE
    assert store.archive(target).files == 1
    store.archive(tmp_path / "other")
    assert support.tree(tmp_path / "other") == support.tree(target)


def test_a_missing_log_file_between_others_is_reported(closed, tmp_path):
    target = tmp_path / "archive"
    with forebay.open(closed, mode="r") as store:
        store.archive(target)
    table = target / "blocks" / NAMES[1]
    table.rename(target / "blocks" / f"{support.FILE * 5:020}")
    with pytest.raises(forebay.CorruptError, match="the table belongs to"):
        forebay.archive.open(target)


@pytest.mark.parametrize("zeros", [5000, 5 << 19])
def test_holes_of_the_store_are_archived_with_it(tmp_path, zeros):
    with support.small(tmp_path / "events") as store:
        support.fill(store, 1)
    log = tmp_path / "events" / "commitlog" / NAMES[0]
    with open(log, "r+b") as file:
        file.seek(1 << 20)
        file.write(bytes(zeros))
    with forebay.open(tmp_path / "events", mode="r") as store:
        assert store.archive(tmp_path / "archive").files == 1
        archive = forebay.archive.open(tmp_path / "archive")
        found = support.rows(archive.scan(columns=support.COLUMNS))
        assert found == support.below(store, archive)
        (hole,) = archive.damage
        assert hole.position <= 1 << 20 and hole.position + hole.length >= (1 << 20) + zeros
        # No block is much longer than another, and the blocks of the hole hold no message.
        assert all(block.length < 3 << 19 for block in archive._tables[0].blocks)
        assert archive.verify() == [hole]
        lost = {(row[1], row[2]) for row in found if row[0] == "orders"}
        ends = {queue.id: queue.max_offset for queue in archive.topics["orders"].queues}
        assert any((queue, n) not in lost for queue, end in ends.items() for n in range(end))


@pytest.mark.parametrize("name", sorted(path.name[:-7] for path in ROCKETMQ.glob("*.tar.gz")))
def test_stores_of_rocketmq_are_archived_and_not_changed(name, tmp_path):
    before = support.tree(unpack(name, tmp_path))
    target = tmp_path / "archive"
    with forebay.open(tmp_path / name, mode="r") as store:
        done = store.archive(target)
        assert not done.recorded
        archive = forebay.archive.open(target)
        found = support.rows(archive.scan(columns=support.COLUMNS))
        assert found == support.below(store, archive)
        logs = sorted((tmp_path / name / "commitlog").iterdir())
        # The current file is never archived, nor is one in which the log ends.
        end = store.stats().published
        sealed = [log for log in logs[:-1] if int(log.name) + log.stat().st_size <= end]
    assert done.files == len(sealed) and (sealed == [] or len(found) > 100)
    assert support.tree(tmp_path / name) == before


@pytest.mark.parametrize(
    "text", ['{"targets": {"a": 0}', "[1]", '{"targets": [1]}', "{}", "", "\udcff", "[" * 100_000]
)
def test_an_unreadable_record_of_archives_is_not_changed(tmp_path, text):
    # A fresh record would name only this archive, and retention would not wait for the others.
    path = tmp_path / "events"
    with support.small(path) as store:
        support.fill(store, 1)
        note = path / "forebay.archived"
        note.write_bytes(text.encode(errors="surrogateescape"))
        before = note.read_bytes()
        done = store.archive(tmp_path / "archive")
        assert (done.files, done.recorded) == (1, False)
        assert note.read_bytes() == before
        note.unlink()
        assert store.archive(tmp_path / "archive").recorded


def test_retention_waits_for_every_archive(tmp_path):
    path = tmp_path / "events"
    with support.small(path) as store:
        support.fill(store, 3)
        store.archive(tmp_path / "a")
        sealed = store.archive(tmp_path / "b").position
    note = path / "forebay.archived"
    targets = json.loads(note.read_bytes())["targets"]
    assert targets == {str(tmp_path / "a"): sealed, str(tmp_path / "b"): sealed}
    targets[str(tmp_path / "b")] = support.FILE
    note.write_text(json.dumps({"targets": targets}))
    options = {"retention_bytes": 1, "keep_unarchived": True}
    with support.small(path, **options) as store:
        # Each step of retention checks all files; the record keeps all but the first.
        until(lambda: store.stats().min_position == support.FILE)
        assert store.archive(tmp_path / "b").position == sealed
        # Files are deleted after the mark of the beginning of the log has moved.
        log = path / "commitlog"
        until(lambda: min(int(file.name) for file in log.iterdir()) == sealed)
        assert store.stats().min_position == sealed
        archive = forebay.archive.open(tmp_path / "a")
        assert len(support.rows(archive.scan("orders"))) > 1000
        # The archive still has what the store no longer has.
        assert store.archive(tmp_path / "a").skipped == 0


def test_files_that_retention_deletes_meanwhile_are_counted_without_an_error(tmp_path):
    path = tmp_path / "events"
    with support.small(path) as store:
        support.fill(store, 3)
        sealed = store.archive(tmp_path / "first").position
    note = path / "forebay.archived"
    note.write_text(json.dumps({"targets": {"another": 0}}))
    with support.small(path, retention_bytes=1, keep_unarchived=True) as store:

        def retire(copied: int, total: int) -> None:
            if store.stats().min_position == 0:
                note.write_text(json.dumps({"targets": {"another": sealed}}))
                until(lambda: store.stats().min_position == sealed)

        done = store.archive(tmp_path / "second", progress=retire)
        assert (done.files, done.retired, done.position) == (1, 2, sealed)


def until(holds) -> None:
    """Wait for another thread to act."""
    patience = threading.Event()
    while not holds():
        patience.wait(0.02)


def test_an_archive_says_why_it_copied_nothing(tmp_path):
    path, target = tmp_path / "store", tmp_path / "archive"
    with support.small(path) as store:
        assert store.archive(target).reason == "the store is empty"
        store.send("orders", b"x")
        store.flush()
        reason = store.archive(target).reason
        assert reason.startswith("no log file is sealed") and "roll()" in reason
        assert store.roll() == support.FILE
        done = store.archive(target)
        assert (done.files, done.position, done.reason) == (1, support.FILE, None)
        reason = store.archive(target).reason
        assert reason == "all sealed log files are already in the archive"
        store.send("orders", b"y")
        store.flush()
        assert "roll()" in store.archive(target).reason
    assert len(forebay.archive.open(target).topics["orders"].queues) >= 1
