"""Where the stores of these tests are."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a memory file system if there is one, else one on disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="forebay-faults-", dir=memory) as folder:
        yield Path(folder)
