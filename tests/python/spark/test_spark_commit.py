"""Commits beside a slow writer, on a full disk and on a read-only mount, without Spark's tasks."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import loopdisk
import pyarrow
import pytest
from counted import once, values
from owner import Owner

import forebay
from forebay import _forebay
from forebay.errors import DiskFullError
from forebay.spark.sink import _commit, _discard
from forebay.spark.stage import StageMessage, stage
from forebay.spark.write import WriteOptions

MARKERS = "rmq_sys_forebay_commits"


def padded(path: Path, numbers: range) -> Any:
    """Stage the numbers with leading zeros, 4,000 bytes each."""
    values = [b"%04000d" % number for number in numbers]
    found = stage(str(path), "q", "t", iter([pyarrow.record_batch({"value": values})])).staged
    assert found is not None
    return found


def test_a_commit_may_take_longer_than_its_timeout_while_it_makes_progress(tmp_path):
    """The writer is stopped again and again, each time for less than the timeout."""
    timeout = 3.0
    rows = pyarrow.record_batch({"value": [bytes(1 << 20)] * 40})
    one = stage(str(tmp_path), "q", "t", iter([rows])).staged
    over = threading.Event()
    with Owner(tmp_path, flush="async") as owner, forebay.open(tmp_path, mode="r") as reader:

        def parts() -> int:
            found = reader.topics.get(MARKERS)
            return found.queues[0].max_offset if found else 0

        def hold_up() -> None:
            end = time.monotonic() + 2 * timeout
            while time.monotonic() < end:
                owner.signal(signal.SIGSTOP)
                over.wait(timeout / 8)
                before = parts()
                owner.signal(signal.SIGCONT)
                while parts() == before and not over.wait(0.001):
                    pass

        holding = threading.Thread(target=hold_up)
        holding.start()
        began = time.monotonic()
        try:
            _commit(WriteOptions(str(tmp_path), commit_timeout=timeout), "batch", "q", 0, [one])
        finally:
            over.set()
            holding.join()
        # Else nothing was tried.
        assert time.monotonic() - began > timeout
        assert parts() == 40


#: Free bytes of a file system on which no part of a commit has room, or some have.
NO_ROOM, SOME_ROOM = 1 << 20, 7 << 20


@pytest.mark.parametrize(
    ("kind", "free"), [("batch", NO_ROOM), ("stream", NO_ROOM), ("batch", SOME_ROOM)]
)
def test_a_commit_on_a_full_disk_is_withdrawn_or_finished_once_there_is_room(tmp_path, kind, free):
    with loopdisk.in_memory(tmp_path / "disk", 96 << 20) as disk:
        path = disk / "store"
        forebay.open(path, commitlog_file_size=2 << 20).close()

        made = [padded(path, range(5_000))]
        filler = disk / "filler"
        room = os.statvfs(disk)
        filler.write_bytes(bytes(room.f_bavail * room.f_frsize - free))
        with pytest.raises(DiskFullError) as raised:
            _commit(WriteOptions(str(path), commit_timeout=1.0), kind, "q", 0, made)
        _discard(str(path), [StageMessage("q", one) for one in made])
        begun = len(values(path)) > 0
        assert begun == (free == SOME_ROOM)
        assert ("will finish it" in str(raised.value)) == begun
        filler.unlink()
        if begun:
            with forebay.open(path) as store:
                _forebay.take_commits(store)
        else:
            # Spark runs the job again.
            _commit(WriteOptions(str(path)), kind, "q", 0, [padded(path, range(5_000))])
        assert values(path) == once(range(5_000))
        assert not any((path / "forebay.stages" / "q").iterdir())


def test_a_read_only_mount_is_named_and_the_options_of_its_store_are_kept(tmp_path):
    path = tmp_path / "store"
    with forebay.open(path, index=False, commitlog_file_size=1 << 20) as store:
        store.producer("t").send_batch([str(number).encode() for number in range(10)])
    with loopdisk.read_only(path):
        with pytest.raises(OSError, match=str(path)) as raised:
            padded(path, range(10, 20))
        assert raised.value.errno == errno.EROFS
        with pytest.raises(OSError, match=str(path)) as raised:
            forebay.open(path)
        assert raised.value.errno == errno.EROFS
        assert values(path) == once(range(10))
    # Spark opens the store with no options.
    _commit(WriteOptions(str(path)), "stream", "q", 0, [padded(path, range(10, 20))])
    assert values(path) == once(range(20))
    assert not any((path / "index").glob("*"))
    assert {file.stat().st_size for file in (path / "commitlog").iterdir()} == {1 << 20}


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
@pytest.mark.parametrize("count", [10, 1_200], ids=["one part", "several parts"])
def test_a_batch_is_recognised_although_a_lower_one_was_appended_after_it(tmp_path, engine, count):
    """A forked checkpoint writes batch 1 again; then batch 2 of the first one is run again."""
    forebay.open(tmp_path, engine=engine).close()

    def write(batch: int, number: int, **options: Any) -> None:
        begin = number * count
        stages = [padded(tmp_path, range(begin, begin + count))]
        _commit(WriteOptions(str(tmp_path), **options), "stream", "q", batch, stages)

    for batch in range(3):
        write(batch, batch)
    for _ in range(2):
        write(1, 3, batch_conflict="append")
        write(2, 2)
    write(3, 4)
    assert values(tmp_path) == once(range(5 * count))
