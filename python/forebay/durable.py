"""What a file needs beside its own sync to be there after a power loss."""

from __future__ import annotations

import os


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
