"""Opening a store, and the status of a read."""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import weakref
from types import NoneType
from typing import Any, Unpack

from forebay import _forebay
from forebay._forebay import Store
from forebay.errors import ForebayError, StoreLockedError, UnsupportedError
from forebay.given import check
from forebay.options import Duration, EngineName, Flush, Mode, Options

__all__ = ["ReadStatus", "open"]


class ReadStatus(enum.Enum):
    """The outcome of a read; `ReadBatch.next_offset` is where to continue."""

    FOUND = "found"
    """At least one message was found."""
    NO_MATCHED_MESSAGE = "no matched message"
    """There were messages, but none passed the filter."""
    NO_MATCHED_LOGIC_QUEUE = "no matched logic queue"
    """The topic or the queue does not exist."""
    NO_MESSAGE_IN_QUEUE = "no message in queue"
    """The queue has never held a message."""
    OFFSET_TOO_SMALL = "offset too small"
    """The offset is before the first message."""
    OFFSET_OVERFLOW_ONE = "offset overflow one"
    """The offset is the next one to be written."""
    OFFSET_OVERFLOW_BADLY = "offset overflow badly"
    """The offset is beyond the next one to be written."""
    OFFSET_FOUND_NULL = "offset found null"
    """The queue entries at the offset point to no message: they are fillers, or damaged."""
    MESSAGE_WAS_REMOVING = "message was removing"
    """The messages at the offset were retired during the read."""


# Stores to close when the interpreter exits. Everything that uses a store references its handle,
# so a store in use stays in this set.
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def open(
    path: str | os.PathLike[str],
    mode: Mode = "a",
    *,
    engine: EngineName | None = None,
    flush: Flush | None = None,
    adopt: bool = False,
    lock_timeout: Duration = 0,
    **options: Unpack[Options],
) -> Store:
    """Open a store.

    Parameters
    ----------
    path
        Directory of the store. ``":memory:"`` is a store that lives as long as its handle.
    mode
        ``"a"`` writes, and creates the store if there is none. ``"x"`` creates it, and fails if it
        exists. ``"r"`` only reads, even while another process writes, and never changes a byte.
        ``"share"`` writes beside up to 249 other processes that have opened the store so, and
        creates it if there is none.
    engine
        ``"commitlog"``, ``"partitionlog"`` or ``"memory"``. By default the engine found on disk; a
        new store gets a commit log. A partition log is the log directory of a Kafka broker.
    flush
        When a send returns. ``"async"``, the default: once the message is in the page cache. It
        then survives a crash of the process at once, and a power loss after ``flush_interval``
        (after ``flush_thorough_interval`` while fewer than ``flush_least_pages`` pages of 4 KiB
        are waiting). ``"sync"``: once the message is on disk.
        The store remembers this setting; see below.
    adopt
        Take over, for writing, a directory that Forebay did not create.
    lock_timeout
        How long to wait for another writer to finish, in seconds or as a timedelta. By default
        opening fails at once.
    **options
        Sizes are in bytes, durations in seconds or as a timedelta. The file sizes
        (``commitlog_file_size``, ``queue_file_entries``, ``index_slots``, ``index_entries``) must
        match those of an existing store.

        A store remembers ``flush`` (``"async"``), ``index`` (True), ``default_queues`` (8),
        ``max_message_size`` (4 MiB), ``checksum`` (True), ``unique_ids`` (False) and
        ``delay_levels`` (RocketMQ's), as last given when it was opened for writing. A writer that
        does not give one of them, or gives None, uses the remembered value, or the default if
        there is none. A reader ignores them. ``delay_levels`` says how long the messages of each
        delay level wait, such as ``"1s 10s 1m 2h 1d"``.

        All other options apply to this handle only: ``flush_interval``, ``flush_least_pages``,
        ``flush_thorough_interval``, ``flush_timeout``, ``queue_flush_interval``,
        ``transient_pool``, ``transient_pool_fail_fast``, ``commit_interval``,
        ``commit_least_pages``, ``roll_after``, ``warm_up``, ``warm_up_flush_pages``,
        ``lock_memory``, ``guard_maps``, ``read_ahead``, ``append_lock``, ``busy_timeout`` and the
        retention options below. ``store_host`` defaults to this host and is also remembered.
        ``append_lock`` is ``"mutex"``, or ``"spin"`` if each sender has a processor of its own.
        ``guard_maps=False`` installs no SIGBUS handler: if a page of a mapped file cannot be
        loaded, the process is killed instead of raising ``DiskError``. ``transient_pool`` is the
        number of 4 MiB buffers that collect appends before they reach the file. Appends wait there
        for up to ``commit_interval`` and are lost if the process dies. A log file is sealed when
        it is full, or when its first message is older than ``roll_after``.

        All messages are kept unless ``retention`` (the maximum age of a log file) or
        ``retention_bytes`` (the maximum length of all log files) is given; then the oldest files
        are deleted. By default (``keep_unconsumed=True``) a file is kept while a group in
        ``config/consumerOffset.json`` has not consumed it; with ``keep_unarchived=True`` it is
        kept until it is in every archive. Files are deleted, due or not, while less than
        ``disk_reserve`` bytes (256 MiB) are free or more than ``disk_warning_ratio`` of the disk
        is in use. Otherwise, if ``delete_when`` is given, files are deleted only in those hours,
        such as ``"04"`` or ``"04;16"``. A partition log applies both limits to each queue by
        itself, as Kafka does, and ignores the free space of the disk.

        In a partition log, ``isolation="read_committed"`` leaves out messages of transactions that
        were aborted, and all from the first message of the oldest open transaction on.
        ``"read_uncommitted"``, the default, shows all messages. ``segment_bytes`` (1 GiB),
        ``segment_ms`` (7 days), ``index_interval_bytes`` (4096) and ``segment_index_bytes``
        (10 MiB) are Kafka's, for its segments. ``compression`` is ``"none"``, the default,
        ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``. ``message_timestamp_type`` is
        ``"CreateTime"``, the default, or ``"LogAppendTime"``. With ``flush="async"``, a flush is
        requested once ``flush_messages`` messages of a queue are not durable; no send waits for it.
        With ``linger``, messages of ``send_nowait`` wait for up to this time for others of their
        queue, and become one batch of up to ``batch_bytes`` (16,384).

        ``cleanup_policy`` is ``"delete"``, the default, ``"compact"``, or ``"compact,delete"`` for
        both, for all topics, or a mapping of topics to these. A topic that is compacted keeps the
        latest message of each key, and takes no message without one. A thread compacts a queue when
        more than ``min_cleanable_dirty_ratio`` (0.5) of its complete segments is not yet compacted,
        or when messages are older than ``max_compaction_lag_ms``. Messages younger than
        ``min_compaction_lag_ms`` (0) are never dropped. Tombstones stay for ``delete_retention_ms``
        (a day). Further options, with Kafka's names and defaults:
        ``log_cleaner_dedupe_buffer_size`` (128 MiB), ``log_cleaner_io_max_bytes_per_second`` (no
        limit) and ``log_cleaner_backoff_ms`` (15,000).

    Returns
    -------
    Store
        The store; use it in a ``with`` statement, or close it.

    Raises
    ------
    StoreNotFoundError
        If there is no store and the mode does not create one.
    StoreLockedError
        If another handle or process is writing, and still is after ``lock_timeout``; ``pid`` is
        its process, if known.
    ForeignStoreError
        If another system created the directory: pass ``mode="r"`` to read or ``adopt=True``.
    InvalidOptionError
        If an option is unknown, out of range, or does not match the files or, with
        ``mode="share"``, the other processes.
    UnsupportedError
        If the store has a form that cannot be opened, or cannot be shared with ``mode="share"``:
        on this file system, or with these options.

    Examples
    --------
    >>> with forebay.open(":memory:", default_queues=2) as store:
    ...     _ = store.send("orders", b"body")
    ...     len(store.topics["orders"].queues)
    2
    """
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    check("path", path, str, "a str or a path of str")
    check("mode", mode, str, "a str")
    check("engine", engine, (str, NoneType), "a str or None")
    check("flush", flush, (str, NoneType), "a str or None")
    check("adopt", adopt, bool, "True or False")
    given: dict[str, Any] = {**options, "lock_timeout": lock_timeout}
    store = _forebay.open_store(path, mode, engine, flush, adopt, given)
    return close_at_exit(store)


def open_writer(path: str, *, engine: EngineName | None = None, adopt: bool = False) -> Store:
    """Open a store for writing, alone, or beside processes that share it."""
    try:
        return open(path, engine=engine, adopt=adopt)
    except StoreLockedError:
        with contextlib.suppress(StoreLockedError, UnsupportedError):
            return open(path, "share", engine=engine, adopt=adopt)
        raise


def close_at_exit(store: Store) -> Store:
    """Have the interpreter close a store when it exits; return the store."""
    _stores.add(store)
    return store


def _reopen(path: str, given: dict[str, Any]) -> Store:
    return open(path, **given)


@atexit.register
def _close_all() -> None:
    for store in list(_stores):
        # No caller is left to handle an error; call close() to see errors.
        with contextlib.suppress(ForebayError):
            store.close()
