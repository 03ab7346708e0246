"""The job `rebuild`: queues and index of a store, from its log alone.

A first Spark job has a task for each log file: queue entries go straight to their places, which
follow from the offsets that records carry, and keys to a file of their own. Then the driver fills
gaps, and knows how many keys lie before each index file. A second job has a task for each of those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from forebay import _forebay
from forebay.errors import StoreExistsError
from forebay.spark.jobs.work import Progress, grouped, run, tasks_at_once
from forebay.spark.options import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where a store's own queues and index are built, and where those that they replace go.
_BUILT, _AWAY = "rebuild.new", "rebuild.old"
_QUEUES = "consumequeue"

#: A task is worth its overhead from so many bytes of the log, or of index entries, on.
_TASK_BYTES_MIN = 64 << 20
#: What the entry of a key costs, in bytes of the log that are laid in that time.
_KEY_BYTES = 64


@dataclass(frozen=True)
class Rebuild:
    """What a rebuild did."""

    path: str
    target: str
    #: Whether the store's own queues and index were replaced.
    replaced: bool
    records: int
    queues: int
    queue_entries: int
    #: Entries that stand for no message, where offsets have none.
    fillers: int
    index_files: int
    index_entries: int
    #: Damage of the log that was passed over: from and to, in positions.
    holes: tuple[tuple[int, int], ...]
    log_bytes: int
    tasks: int
    seconds: float

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


def rebuild(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    index: bool = True,
    adopt: bool = False,
    progress: Progress | None = None,
) -> Rebuild:
    """Build the queues and the index of a store from its log, byte for byte as Forebay does.

    Only the names of index files differ: such a name is the time at which the file was made, and
    here that of its first key.

    Parameters
    ----------
    spark
        The session.
    path
        Directory of a store that nobody writes and that was closed, or a RocketMQ's. Every worker
        reaches it under this path, and the target too.
    target
        A directory, new or empty, for `consumequeue` and `index`. Without one those of the store
        are replaced, under its lock; after a crash in between the next opening builds them again.
    index
        Whether to build the index. Without it, in place, the store's is removed, and the next
        writer builds it again.
    adopt
        Whether to replace the queues of a store that Forebay did not create.
    progress
        Called with the number of tasks that are done, and of all; not from a remote session.

    Raises
    ------
    StoreLockedError
        If somebody writes the store.
    UnsupportedError
        If the store was not closed: opening it for writing decides where its log ends.
    CorruptError
        If it takes more than ranges of the log to decide what a queue holds: an offset that comes
        again, a gap that nothing explains, damage in the log of another system. Opening the store
        decides it, in one process.
    StoreExistsError
        If the target is not empty.

    Examples
    --------
    >>> forebay.spark.rebuild(spark, "events").queue_entries  # doctest: +SKIP
    1000000
    """
    began = time.monotonic()
    root = local("path", path)
    with _place(root, target, adopt=adopt) as (built, lock):
        ranges = _forebay.rebuild_ranges(root, lock is not None)
        groups_wanted = 4 * tasks_at_once(spark)
        lengths = [end - start for start, end in ranges]
        groups = grouped(lengths, groups_wanted, _TASK_BYTES_MIN)
        first = [_Ranges(root, built, [ranges[n] for n in group], index) for group in groups]
        # In the order of the log.
        laid = sorted(part for parts in run(spark, first, _lay, progress) for part in parts)
        settled = _forebay.rebuild_settle(root, built, laid)
        _end, records, queues, queue_entries, fillers, holes, plans = settled
        staged = [(part[0], part[3]) for part in laid]
        groups = grouped([_KEY_BYTES * plan[2] for plan in plans], groups_wanted, _TASK_BYTES_MIN)
        second = [_Files(root, built, staged, [plans[n] for n in group]) for group in groups]
        run(spark, second, _build, progress)
        shutil.rmtree(os.path.join(built, "keys"), ignore_errors=True)
        if lock is not None:
            _keep_retired(os.path.join(root, _QUEUES), os.path.join(built, _QUEUES))
            lock.install(built, os.path.join(root, _AWAY), plans)
    return Rebuild(
        path=root,
        target=root if target is None else built,
        replaced=target is None,
        records=records,
        queues=queues,
        queue_entries=queue_entries,
        fillers=fillers,
        index_files=len(plans),
        index_entries=sum(plan[2] for plan in plans),
        holes=tuple(holes),
        log_bytes=sum(lengths),
        tasks=len(first) + len(second),
        seconds=time.monotonic() - began,
    )


@contextlib.contextmanager
def _place(
    root: str, target: str | os.PathLike[str] | None, *, adopt: bool
) -> Iterator[tuple[str, _forebay.StoreLock | None]]:
    """Give a directory to build in, and the store's lock where its own queues are replaced."""
    if target is not None:
        built = local("target", target)
        os.makedirs(built, mode=0o700, exist_ok=True)
        if os.listdir(built):
            message = f"{built} is not empty: rebuild takes a new directory"
            raise StoreExistsError(message, path=built)
        yield built, None
        return
    lock = _forebay.StoreLock(root, adopt)
    built = os.path.join(root, _BUILT)
    try:
        # What a rebuild that was cut short has left.
        old, own = os.path.join(root, _AWAY, _QUEUES), os.path.join(root, _QUEUES)
        if os.path.isdir(old) and not os.path.exists(own):
            os.rename(old, own)
        _remove(root)
        os.mkdir(built, mode=0o700)
        yield built, lock
        _remove(root)
    finally:
        lock.release()


def _keep_retired(own: str, built: str) -> None:
    """Link what the store has of queues whose messages are all retired: it tells their offsets."""
    for folder, _folders, files in os.walk(own):
        name = os.path.relpath(folder, own)
        target = os.path.join(built, name)
        if name.count(os.sep) != 1 or os.path.exists(target):
            continue
        os.makedirs(target, mode=0o700)
        for file in files:
            os.link(os.path.join(folder, file), os.path.join(target, file))


def _remove(root: str) -> None:
    for name in (_BUILT, _AWAY):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(root, name))


@dataclass(frozen=True)
class _Ranges:
    path: str
    target: str
    ranges: list[tuple[int, int]]
    index: bool


@dataclass(frozen=True)
class _Files:
    path: str
    target: str
    staged: list[tuple[int, int]]
    plans: list[tuple[int, int, int]]


def _lay(task: _Ranges) -> list[Any]:
    token = uuid.uuid4().hex
    return _forebay.rebuild_lay(task.path, task.target, task.ranges, task.index, token)


def _build(task: _Files) -> None:
    token = uuid.uuid4().hex
    _forebay.rebuild_index(task.path, task.target, task.staged, task.plans, token)
