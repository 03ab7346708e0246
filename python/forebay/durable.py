"""Durable files: a power loss leaves the old content or the new one, and no name is lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replace_file", "sync_directory", "write_all", "written_whole"]


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


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces the target on success and is removed on failure.

    Other processes may write the same target: the last one to end wins. The new name is not durable
    on return.
    """
    _remove_left_over(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        handle = _create(temporary)
    except OSError as error:
        # The caller does not know the name of the temporary file.
        error.filename = os.fspath(target)
        raise
    with handle:
        try:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _remove_left_over(target: Path) -> None:
    """Remove the temporary files that killed writers of the target have left."""
    prefix, suffix = f".{target.name}.", ".tmp"
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            number = path.name.removeprefix(prefix).removesuffix(suffix)
            if path.name == f"{prefix}{number}{suffix}" and number.isdecimal():
                _remove_if_unlocked(path)


def _remove_if_unlocked(path: Path) -> None:
    # A process id means nothing in another container, but a lock always ends with its process.
    with contextlib.suppress(OSError), open(path, "r+b") as handle:
        if _lock(handle) and _is_at(handle, path):
            path.unlink()


def _create(path: Path) -> BinaryIO:
    """Create a file and lock it; retry if another process removed it before it was locked."""
    while True:
        handle = open(path, "xb")  # noqa: SIM115
        if not _lock(handle) or _is_at(handle, path):
            return handle
        handle.close()


def _is_at(handle: BinaryIO, path: Path) -> bool:
    """Return whether the path leads to the open file."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _lock(handle: BinaryIO) -> bool:
    """Lock a file until it is closed. False if it is locked, or if the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
