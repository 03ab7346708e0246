"""Opening a store, and what reads report."""

import atexit
import contextlib
import enum
import os
import weakref
from typing import Any

from forebay import _forebay
from forebay._forebay import Store
from forebay.errors import ForebayError

__all__ = ["ReadStatus", "open"]


class ReadStatus(enum.Enum):
    """What a read found; `ReadBatch.next_offset` says where to go on."""

    #: At least one message.
    FOUND = "found"
    #: Messages were there, none passed the filter.
    NO_MATCHED_MESSAGE = "no matched message"
    #: The topic or the queue does not exist.
    NO_MATCHED_LOGIC_QUEUE = "no matched logic queue"
    #: The queue has never held a message.
    NO_MESSAGE_IN_QUEUE = "no message in queue"
    #: The offset lies before the first message.
    OFFSET_TOO_SMALL = "offset too small"
    #: The offset is the next to be written.
    OFFSET_OVERFLOW_ONE = "offset overflow one"
    #: The offset lies further behind the end.
    OFFSET_OVERFLOW_BADLY = "offset overflow badly"
    #: The entries at the offset lead to no message: fillers, or damage.
    OFFSET_FOUND_NULL = "offset found null"
    #: The messages at the offset have just been retired.
    MESSAGE_WAS_REMOVING = "message was removing"


# Stores that the interpreter's exit has to close. Whatever uses a store refers to its handle, so a
# store that is in use is in here.
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def open(
    path: str | os.PathLike[str],
    mode: str = "a",
    *,
    engine: str | None = None,
    flush: str | None = None,
    adopt: bool = False,
    **options: Any,
) -> Store:
    """Open a store.

    Parameters
    ----------
    path
        Directory of the store; ``":memory:"`` is a store that lives as long as its handle.
    mode
        ``"a"`` writes, and creates the store where there is none; ``"x"`` creates it, and fails if
        it is there; ``"r"`` reads, beside a writer too, and never changes a byte.
    engine
        ``"commitlog"`` or ``"memory"``; by default what is on disk, a new store being a commit log.
    flush
        When a send returns. ``"async"``, the default: once the message is in the page cache, safe
        from a crash of the process, and from a power loss after ``flush_interval`` (fewer than
        ``flush_least_pages`` pages of 4 KiB after ``flush_thorough_interval``). ``"sync"``: once
        it is on the disk.
        A store keeps it, see below.
    adopt
        Take over, for writing, a directory that Forebay did not create.
    **options
        Sizes in bytes, durations in seconds or as timedelta. Those of files
        (``commitlog_file_size``, ``queue_file_entries``, ``index_slots``, ``index_entries``) must
        agree with a store that is there.

        A store keeps ``flush`` (``"async"``), ``index`` (True), ``default_queues`` (8),
        ``max_message_size`` (4 MiB), ``checksum`` (True) and ``unique_ids`` (False), as the last
        opening for writing gave them. An opening for writing that gives none, or None, uses what
        is kept, else the default. A reader uses none of them.

        The others hold for one opening: ``flush_interval``, ``flush_least_pages``,
        ``flush_thorough_interval``, ``flush_timeout``, ``queue_flush_interval``,
        ``transient_pool``, ``transient_pool_fail_fast``, ``commit_interval``,
        ``commit_least_pages``, ``roll_after``, ``warm_up``, ``warm_up_flush_pages``,
        ``lock_memory``, ``guard_maps``, ``read_ahead``, ``append_lock``, ``busy_timeout``, those
        of retention below. ``store_host`` is this host unless it is given, and kept likewise.
        ``append_lock`` is ``"mutex"``, or ``"spin"`` where senders have a processor each.
        ``guard_maps=False`` installs no handler of SIGBUS: a page of a file that cannot be had
        then kills the process, and is no ``DiskError``. ``transient_pool`` is a number of buffers
        of 4 MiB that take appends in front of the file; what is not written out yet, for up to
        ``commit_interval``, is lost if the process dies. A log file is sealed when it is full, or
        once its first message is older than ``roll_after``.

        All messages stay unless ``retention`` (the age that a log file reaches) or
        ``retention_bytes`` (the length of all log files) is given: then the oldest files go. They
        stay while a group of ``config/consumerOffset.json`` has not consumed them
        (``keep_unconsumed=True``), and with ``keep_unarchived=True`` until they are in every
        archive. They go, due or not, while less than ``disk_reserve`` bytes (256 MiB) are free or
        more than ``disk_warning_ratio`` of the disk is in use, and else only in the hours
        ``delete_when``, such as ``"04"`` or ``"04;16"``, where it is given.

    Returns
    -------
    Store
        The store; use it in a ``with`` statement, or close it.

    Raises
    ------
    StoreNotFoundError
        If there is no store and the mode does not create one.
    StoreLockedError
        If another handle or process is writing; ``pid`` says which, where that is known.
    ForeignStoreError
        If another system made the directory: read it with ``mode="r"`` or pass ``adopt=True``.
    InvalidOptionError
        If an option is unknown, out of range, or contradicts the files.

    Examples
    --------
    >>> with forebay.open(":memory:", default_queues=2) as store:
    ...     _ = store.send("orders", b"body")
    ...     len(store.topics["orders"].queues)
    2
    """
    store = _forebay.open_store(path, mode, engine, flush, adopt, options)
    _stores.add(store)
    return store


def _reopen(path: str, given: dict[str, Any]) -> Store:
    return open(path, **given)


@atexit.register
def _close_all() -> None:
    for store in list(_stores):
        # Nobody is left to be told: whoever wants to know of errors calls close.
        with contextlib.suppress(ForebayError):
            store.close()
