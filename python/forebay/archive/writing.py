"""What directories and object stores share: names, copies, errors of the operating system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forebay.errors import DiskError, DiskFullError, DiskPermissionError

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["PART", "OnChunk", "named", "open_file", "read_next", "read_small", "reading"]

#: Suffix of a file that is still being written.
PART = ".part"

#: Longest file that `read_small` reads.
_SMALL = 64 << 20

#: Called with the number of bytes of each chunk that was copied.
OnChunk = Callable[[int], object]


def read_next(source: FileIO, length: int) -> bytes:
    """Read the next bytes of the source; its errors must not be reported as the target's."""
    try:
        return os.read(source.fileno(), length)
    except OSError as error:
        raise _unreadable(str(source.name), error) from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the operating system's errors into Forebay's; a file may be missing, as with `open`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def open_file(path: str) -> FileIO:
    """Open a regular file for reading, without waiting for a writer if it is a pipe.

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    DiskError
        If it cannot be opened, or is not a regular file.
    """
    with reading(path):
        file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DiskError(f"cannot read {path}: not a regular file", path=path, errno=errno.EINVAL)
    return file


def read_small(path: str) -> bytes:
    """Read a small regular file; raise as `open_file`, and if the file is too long."""
    with open_file(path) as file, reading(path):
        data = file.read(_SMALL + 1)
    if len(data) > _SMALL:
        reason = f"longer than {_SMALL} bytes"
        raise DiskError(f"cannot read {path}: {reason}", path=path, errno=errno.EFBIG)
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _unreadable(path: str, error: OSError) -> DiskError:
    kind = DiskPermissionError if isinstance(error, PermissionError) else DiskError
    message = f"cannot read {path}: {os.strerror(error.errno or 0)}"
    return kind(message, path=path, errno=error.errno)


@contextlib.contextmanager
def named(path: str, length: int, free: Callable[[], int]) -> Iterator[None]:
    """Turn the operating system's write errors into Forebay's, with the path."""
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        number = error.errno
        if number is None:
            # A library's own error, which describes what the server refused.
            raise
        message = f"cannot write {path}: {os.strerror(number)}"
        if number in (errno.ENOSPC, errno.EDQUOT):
            message = f"{message}; the file needs {length} bytes"
            raise DiskFullError(
                message, path=path, needed=length, free=free(), errno=number
            ) from error
        permission = number in (errno.EACCES, errno.EPERM)
        kind = DiskPermissionError if permission else DiskError
        raise kind(message, path=path, errno=number) from error
