"""Durable files: a power loss leaves the old content or the new one, and no name is lost."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file", "sync_directory", "write_all"]


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the directory's entries durable.

    Without this, a power loss can lose the name of a file that was synced.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_all(file: int, data: bytes) -> None:
    """Write all bytes to a descriptor; one call may write only some when space is short."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def replace_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Replace a file by another one with this content, atomically and durably.

    The caller must exclude other processes that replace the same file. What a crash leaves under
    the temporary name is overwritten by the next call.
    """
    fresh = path.with_name(f"{path.name}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(str(fresh), str(path))
    sync_directory(path.parent)
