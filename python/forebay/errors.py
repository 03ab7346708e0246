"""The errors that Forebay raises.

Every class derives from `ForebayError` and from the built-in exception that a Python programmer
would catch, and carries its details as attributes. A message names the operation, the path or
topic, the value and its limit, and what to do next.
"""

import errno as _errno
from typing import Any

__all__ = [
    "AlreadySettledError",
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
    "OwnershipLostError",
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
    """Base class of all Forebay errors.

    Attributes
    ----------
    row
        Index, from 0, of the batch row that was refused; `None` outside batches. No row of the
        chunk that contains it was appended.
    """

    row: int | None = None
    # The errno of subclasses of OSError; `None` for the others.
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
    """No store exists at `path`, and the mode does not create one."""

    _errno = _errno.ENOENT
    path: str


class StoreExistsError(ForebayError, FileExistsError):
    """A store exists at `path`, or the archive there is of another store."""

    _errno = _errno.EEXIST
    path: str


class NotAStoreError(ForebayError, NotADirectoryError):
    """The path exists but is not a store; `reason` says why."""

    _errno = _errno.ENOTDIR
    path: str
    reason: str


class ForeignStoreError(ForebayError, PermissionError):
    """Another system created the directory: read with ``mode="r"``, write with ``adopt=True``."""

    _errno = _errno.EPERM
    path: str


class StoreLockedError(ForebayError, BlockingIOError):
    """Another handle has the store open for writing; `pid` is its process, `None` if unknown."""

    _errno = _errno.EAGAIN
    path: str
    pid: int | None


class StoreClosedError(ForebayError, ValueError):
    """The store or the consumer was closed.

    Attributes
    ----------
    path
        The store's path; `None` for a consumer, or if it was not known where the error was raised.
    """

    path: str | None = None


class StoreFailedError(ForebayError, OSError):
    """A disk write failed for good: reads still work; reopen the store to write.

    Attributes
    ----------
    appended
        Whether the message of this call is in the log. If it is, its durability is unknown.
    """

    _errno = _errno.EIO
    appended: bool
    reason: str


class ReadOnlyError(ForebayError, PermissionError):
    """The store was opened for reading, or the topic does not allow writing."""

    _errno = _errno.EACCES


class ForkedError(ForebayError, RuntimeError):
    """The handle was opened before ``fork``; open the store again in the child process."""


class UnknownTopicError(ForebayError, LookupError):
    """The store has no such topic, or the topic has no such queue.

    Attributes
    ----------
    queue
        The queue that does not exist; `None` if the topic itself is unknown.
    """

    topic: str
    queue: int | None = None


class InvalidTopicError(ForebayError, ValueError):
    """The name is not a valid topic name; `reason` says which rule it breaks."""

    topic: str
    reason: str


class InvalidOptionError(ForebayError, ValueError):
    """The argument or option `name` has an invalid `value`; `reason` is the rule it breaks.

    Attributes
    ----------
    topic, queue, offset
        The missing message for which `forebay.convert` cannot keep offsets; None otherwise.
    """

    name: str
    value: str
    reason: str
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None


class MessageTooLargeError(ForebayError, ValueError):
    """A message, or a part of one, is too large: `size` and `limit` are in bytes."""

    what: str
    size: int
    limit: int


class OffsetOutOfRangeError(ForebayError, IndexError):
    """The offset is not in the queue: its offsets are `min_offset` to `max_offset` - 1."""

    topic: str
    queue: int
    offset: int
    min_offset: int
    max_offset: int


class AlreadySettledError(ForebayError, ValueError):
    """The message was settled before: acknowledged, refused or rejected."""

    topic: str
    queue: int
    offset: int


class OwnershipLostError(ForebayError, RuntimeError):
    """The consumer does not hold the message or the queue; or the producer lost its own queue.

    A consumer does not hold a message

    - that was not settled within ``visibility_timeout``, once it is delivered again or its queue
      has another owner
    - that was taken back: with ``order="queue"``, an earlier message of its queue was refused or
      is delivered again
    - of a queue in which `seek` or `reset_offsets` has moved the group
    - if, with ``mode="share"``, its process has shown no sign of life for ``session_timeout``, so
      that others have got its queues
    - that another consumer delivered, of its group or of another group or store.

    `seek` to offsets raises it for a queue that another consumer owns. A producer loses a queue of
    its own when it is closed, or when a newer one of its name takes the queue over.
    """

    topic: str
    queue: int


class LogShrunkError(ForebayError, OSError):
    """The log is shorter than when it was last read, or another log has replaced it.

    Attributes
    ----------
    position
        Durable end of the log when it was last read; for a consumer, the offset of its queue that
        its group had reached.
    end
        Position up to which the log is still the one that was read; 0 if it was replaced. For a
        consumer, the end of its queue.
    topic, queue
        The queue of a consumer; None for a log.
    path
        The log; None for a consumer.
    """

    _errno = _errno.EIO
    path: str | None = None
    topic: str | None = None
    queue: int | None = None
    position: int
    end: int


class CorruptError(ForebayError, OSError):
    """The bytes at `position` in `path` are corrupt; `reason` says how."""

    _errno = _errno.EIO
    path: str
    position: int
    reason: str


class UnsupportedError(ForebayError, NotImplementedError):
    """The files or the call need a feature that this version does not support.

    Attributes
    ----------
    path, reason
        A store that this version reads and does not write to, and why; None otherwise.
    """

    path: str | None = None
    reason: str | None = None


class DiskError(ForebayError, OSError):
    """An operating system call on `path` failed; `errno` says why.

    `position` is the byte offset at which an access to a mapped file failed; otherwise `None`.
    """

    path: str
    position: int | None


class DiskPermissionError(DiskError, PermissionError):
    """The operating system denied permission for an operation on `path`."""


class DiskFullError(ForebayError, OSError):
    """The file system is full. Nothing was appended; sends work again once there is space."""

    _errno = _errno.ENOSPC
    path: str
    needed: int
    free: int


class BusyError(ForebayError, TimeoutError):
    """Others held the log, or a lock, for too long: the text says which. Try again.

    Nothing was appended.
    """

    _errno = _errno.ETIMEDOUT
    waited_ms: int


class FlushTimeoutError(ForebayError, TimeoutError):
    """The message is in the log but was not durable in time: do not resend it, call ``flush``.

    Attributes
    ----------
    result
        Where the message is, as ``send`` would have returned it; `None` if unknown.
    """

    _errno = _errno.ETIMEDOUT
    timeout_ms: int
    result: Any = None
