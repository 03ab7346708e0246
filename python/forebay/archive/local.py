"""Archives in directories."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.archive.writing import PART, OnChunk, named, open_file, read_next, reading
from forebay.durable import sync_directory, write_all

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["LocalFiles"]

#: Bytes to copy between two progress reports.
_CHUNK = 64 << 20
#: Errors by which the kernel refuses to copy between two files itself. With EIO, a copy by read and
#: write shows which of the two files failed.
_NOT_THIS_WAY = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.EPERM,
    errno.ETXTBSY,
    errno.EIO,
}


class LocalFiles:
    """The files of an archive in a directory."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self.target = self.key = root

    def describe(self, name: str = "") -> str:
        """Return the path of a file."""
        return str(self._root / name)

    def folders(self) -> list[str]:
        """Return the names of the folders."""
        try:
            with reading(self.describe()), os.scandir(self._root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return file sizes by name in a folder."""
        try:
            with reading(self.describe(folder)), os.scandir(self._root / folder) as entries:
                return {
                    entry.name: entry.stat().st_size
                    for entry in entries
                    if entry.is_file() and not entry.name.endswith(PART)
                }
        except FileNotFoundError:
            return {}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        path = self.describe(name)
        with open_file(path) as file, reading(path):
            file.seek(start)
            parts = []
            while length is None or length > 0:
                # One call returns at most 2 GiB.
                part = file.read(-1 if length is None else length)
                if not part:
                    break
                parts.append(part)
                length = None if length is None else length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, make it durable, and rename it."""
        self._put(name, lambda part: write_all(part, data), len(data))

    def copy(self, name: str, source: FileIO, length: int, on_chunk: OnChunk) -> int:
        """Copy bytes, in the kernel where possible, so that they stay out of this process."""
        copied = 0

        def fill(part: int) -> None:
            nonlocal copied
            copied = _copy_all(source, part, length, on_chunk)

        self._put(name, fill, length)
        return copied

    def _put(self, name: str, fill: Callable[[int], None], length: int) -> None:
        path = self._root / name
        with named(str(path), length, lambda: _free(path)):
            self._make(path, fill)

    def _make(self, path: Path, fill: Callable[[int], None]) -> None:
        folder = path.parent
        # A new folder is durable once its name in the parent folder is.
        above = {over.parent for over in (folder, *folder.parents) if not over.exists()}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep(path)
        part, file = _begin(path)
        try:
            fill(file)
            os.fsync(file)
            os.rename(part, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise
        finally:
            os.close(file)
        for directory in {folder, self._root, self._root.parent} | above:
            sync_directory(directory)

    def _sweep(self, path: Path) -> None:
        """Remove parts of this file that dead processes left; a live process holds a lock."""
        import fcntl

        for part in path.parent.glob(f"{path.name}.*{PART}"):
            with contextlib.suppress(OSError):
                file = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(part)
                finally:
                    os.close(file)


def _begin(path: Path) -> tuple[Path, int]:
    """Create the part of a file, and lock it against `_sweep`."""
    import fcntl

    while True:
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PART}")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return part, file
        # Another process swept it between the two calls.
        os.close(file)


def _by_copy_file_range(source: FileIO, target: int, length: int) -> int:
    return os.copy_file_range(source.fileno(), target, length)


def _by_sendfile(source: FileIO, target: int, length: int) -> int:
    return os.sendfile(target, source.fileno(), None, length)


def _by_hand(source: FileIO, target: int, length: int) -> int:
    data = read_next(source, min(length, 1 << 20))
    write_all(target, data)
    return len(data)


#: Ways to copy, cheapest first. The kernel refuses the first two before it has copied anything, so
#: the next one continues at the same position.
_WAYS = [
    way
    for way, call in (
        (_by_copy_file_range, "copy_file_range"),
        (_by_sendfile, "sendfile"),
        (_by_hand, "read"),
    )
    if hasattr(os, call)
]


def _copy_all(source: FileIO, target: int, length: int, on_chunk: OnChunk) -> int:
    copied = 0
    ways = list(_WAYS)
    while copied < length:
        try:
            some = ways[0](source, target, min(length - copied, _CHUNK))
        except OSError as error:
            if error.errno not in _NOT_THIS_WAY or len(ways) == 1:
                raise
            del ways[0]
            continue
        if some == 0:
            break
        copied += some
        on_chunk(some)
    return copied


def _free(path: Path) -> int:
    """Return the free space, in bytes, where a file was to be written; 0 if unknown."""
    for folder in path.parents:
        with contextlib.suppress(OSError):
            found = os.statvfs(folder)
            return found.f_bavail * found.f_frsize
    return 0
