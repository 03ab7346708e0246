"""The errors of Forebay.

Every class derives from `ForebayError` and from the built-in that a Python programmer would catch,
and carries its facts as attributes. A message says what was tried, on which path or topic, with
value and limit, and what to do.
"""

import errno as _errno
from typing import Any

__all__ = [
    "BusyError",
    "CorruptError",
    "DiskError",
    "DiskFullError",
    "DiskPermissionError",
    "FlushTimeoutError",
    "ForebayError",
    "ForeignStoreError",
    "ForkedError",
    "InvalidOptionError",
    "InvalidTopicError",
    "LogShrunkError",
    "MessageTooLargeError",
    "NotAStoreError",
    "OffsetOutOfRangeError",
    "ReadOnlyError",
    "StoreClosedError",
    "StoreExistsError",
    "StoreFailedError",
    "StoreLockedError",
    "StoreNotFoundError",
    "UnknownTopicError",
    "UnsupportedError",
]


class ForebayError(Exception):
    """Base of all errors of Forebay.

    Attributes
    ----------
    row
        Number of the row of a batch that was refused, from 0; `None` outside batches. Nothing of
        the row's chunk was appended.
    """

    row: int | None = None
    # The number that an operating system error of this kind has; `None` for the others.
    _errno: int | None = None

    def __init__(self, message: str = "", **facts: Any) -> None:
        number = facts.get("errno", self._errno)
        if isinstance(self, OSError):
            path = facts.get("path")
            named = () if path is None else (path,)
            super().__init__(number, message, *named)
        else:
            super().__init__(message)
        self._message = message
        self._facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self._message, self._facts)


def _again(kind: type[ForebayError], message: str, facts: dict[str, Any]) -> ForebayError:
    return kind(message, **facts)


class StoreNotFoundError(ForebayError, FileNotFoundError):
    """There is no store at `path`, and the mode does not create one."""

    _errno = _errno.ENOENT
    path: str


class StoreExistsError(ForebayError, FileExistsError):
    """Mode ``"x"`` met a store that is already there."""

    _errno = _errno.EEXIST
    path: str


class NotAStoreError(ForebayError, NotADirectoryError):
    """The path is something, but not a store."""

    _errno = _errno.ENOTDIR
    path: str
    reason: str


class ForeignStoreError(ForebayError, PermissionError):
    """Another system made the directory: pass ``mode="r"`` to read, ``adopt=True`` to write."""

    _errno = _errno.EPERM
    path: str


class StoreLockedError(ForebayError, BlockingIOError):
    """Another handle owns the writing; `pid` is its process, `None` where that is unknown."""

    _errno = _errno.EAGAIN
    path: str
    pid: int | None


class StoreClosedError(ForebayError, ValueError):
    """The store was closed."""


class StoreFailedError(ForebayError, OSError):
    """A write to the disk failed for good: reading goes on, open the store again to write.

    Attributes
    ----------
    appended
        Whether the message of this call is in the log, its durability unknown.
    """

    _errno = _errno.EIO
    appended: bool
    reason: str


class ReadOnlyError(ForebayError, PermissionError):
    """The store was opened for reading, or the topic does not allow writing."""

    _errno = _errno.EACCES


class ForkedError(ForebayError, RuntimeError):
    """The handle was opened before ``fork``: open the store again in the child process."""


class UnknownTopicError(ForebayError, LookupError):
    """The store has no such topic, or the topic no such queue.

    Attributes
    ----------
    queue
        The queue that the topic does not have; `None` where the topic itself is unknown.
    """

    topic: str
    queue: int | None = None


class InvalidTopicError(ForebayError, ValueError):
    """The name cannot be a topic's; `reason` says which rule it breaks."""

    topic: str
    reason: str


class InvalidOptionError(ForebayError, ValueError):
    """The argument or option `name` has a value that is not allowed; `reason` is the rule."""

    name: str
    value: str
    reason: str


class MessageTooLargeError(ForebayError, ValueError):
    """A message or a part of it is larger than allowed: `size` and `limit` are bytes."""

    what: str
    size: int
    limit: int


class OffsetOutOfRangeError(ForebayError, IndexError):
    """The queue does not have the offset: it has those from `min_offset` below `max_offset`."""

    topic: str
    queue: int
    offset: int
    min_offset: int
    max_offset: int


class LogShrunkError(ForebayError, OSError):
    """The log of a store came back shorter than it was read, or another is in its place.

    Attributes
    ----------
    position
        End of what was durable when the log was read.
    end
        Up to where the log is still the one that was read; 0 where it is another.
    """

    _errno = _errno.EIO
    path: str
    position: int
    end: int


class CorruptError(ForebayError, OSError):
    """Bytes on disk are not what they have to be, at `position` of `path`."""

    _errno = _errno.EIO
    path: str
    position: int
    reason: str


class UnsupportedError(ForebayError, NotImplementedError):
    """The files, or the call, ask for what this version does not do."""


class DiskError(ForebayError, OSError):
    """The operating system refused an operation on `path`; `errno` says why.

    Where a load or store in a mapped file failed, `position` is the byte of the file; else None.
    """

    path: str
    position: int | None


class DiskPermissionError(DiskError, PermissionError):
    """The operating system did not permit an operation on `path`."""


class DiskFullError(ForebayError, OSError):
    """The file system has no room; nothing was appended, and sending works again when there is."""

    _errno = _errno.ENOSPC
    path: str
    needed: int
    free: int


class BusyError(ForebayError, TimeoutError):
    """The log was busy for too long: nothing was appended, try again."""

    _errno = _errno.ETIMEDOUT
    waited_ms: int


class FlushTimeoutError(ForebayError, TimeoutError):
    """The message is in the log, but was not durable in time: do not send it again, flush.

    Attributes
    ----------
    result
        Where the message is, as ``send`` would have returned it; `None` where that is unknown.
    """

    _errno = _errno.ETIMEDOUT
    timeout_ms: int
    result: Any = None
