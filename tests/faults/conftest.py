"""Where the stores of these tests lie."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """Give a folder in memory, where there is such a file system, else one on the disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="forebay-faults-", dir=memory) as folder:
        yield Path(folder)
