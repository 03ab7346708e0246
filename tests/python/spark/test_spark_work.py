"""What the jobs have in common: the errors of tasks."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from forebay.spark.jobs import parquet, work


def test_an_error_of_the_system_in_a_task_is_the_callers(spark: Any) -> None:
    # Functions of this module are not the workers': one of a function is sent as a whole.
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
