"""Directory syncs: without one, a power loss can lose the name of a file that was synced."""

from __future__ import annotations

import os


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the directory's entries durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
