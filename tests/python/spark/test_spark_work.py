"""What the jobs share: errors of tasks, and arguments that are refused."""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import forebay
from forebay.spark import compact, export, report
from forebay.spark.jobs import parquet, work


def test_a_system_error_in_a_task_is_raised_to_the_caller(spark: Any) -> None:
    # Workers do not have this module; a nested function is pickled by value.
    def fill(path: str) -> None:
        raise OSError(errno.ENOSPC, "no room", path)

    with pytest.raises(OSError, match="no room") as caught:
        work.run(spark, ["one", "two"], fill)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "one")


def test_errors_of_arrow_get_a_path(tmp_path: Path) -> None:
    schema = pyarrow.schema({"a": pyarrow.int64()})
    missing = str(tmp_path / "missing" / "file.parquet")
    for path, number in ((missing, errno.ENOENT), ("/dev/full", errno.ENOSPC)):
        with pytest.raises(OSError, match=r"such file|No space left") as caught:
            parquet._Open(path, schema, "zstd")
        assert (caught.value.errno, caught.value.filename) == (number, path)


def test_a_sync_that_fails_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet._Open(str(tmp_path / "a"), pyarrow.schema({"a": pyarrow.int64()}), "zstd")

    def refused(_file: int) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(OSError, match="output error") as caught:
        file.close(())
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, file.path)


@pytest.mark.parametrize("before", ["open", "flock"])
def test_a_folder_removed_while_it_is_locked_belongs_to_another_job(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous holder of the lock removes the folder."""
    module, name = (builtins, "open") if before == "open" else (fcntl, "flock")
    plain, folder, place = getattr(module, name), tmp_path / "work", str(tmp_path / "target")

    def late(*arguments: Any) -> Any:
        shutil.rmtree(folder)
        return plain(*arguments)

    monkeypatch.setattr(module, name, late)
    refused = pytest.raises(BlockingIOError, match="another export")
    with refused as caught, work.alone(str(folder), place, "export"):
        pass
    assert (caught.value.errno, caught.value.filename) == (errno.EAGAIN, place)
    monkeypatch.undo()
    with work.alone(str(folder), place, "export"):
        assert folder.exists()


@pytest.mark.parametrize("job", [export, compact, report])
def test_one_string_is_refused_as_a_list_of_topics(job: Callable[..., Any], tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20) as store:
        store.send("o", b"x")
    with pytest.raises(forebay.InvalidOptionError, match=r"must be a list.*\['orders'\]"):
        job(None, tmp_path / "store", tmp_path / "target", topics="orders")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("compression", ["bogus", "", None])
def test_an_unknown_compression_is_refused(compression: Any, tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20):
        pass
    spark: Any = None
    with pytest.raises(forebay.InvalidOptionError, match="zstd"):
        export(spark, tmp_path / "store", tmp_path / "lake", compression=compression)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
