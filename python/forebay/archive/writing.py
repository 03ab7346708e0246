"""What directories and object stores share: names, copies, errors of the operating system."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from forebay.errors import DiskError, DiskFullError, DiskPermissionError

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["PART", "OnChunk", "named", "read_next", "reading"]

#: Suffix of a file that is still being written.
PART = ".part"

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
