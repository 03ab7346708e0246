"""The job `export`: writes messages to partitioned Parquet, each exactly once over all runs.

```text
target/topic=orders/date=2026-03-01/<run>-<task>-<n>.parquet   what readers see
target/_forebay/<run>.json      manifest of a run: its files, and where the next run continues
target/_forebay/<run>.tmp/      files of a run in progress
```

A run writes its files where no reader looks: Spark, Arrow and Hive ignore names that begin with an
underscore. The manifest is the commit: it appears atomically and durably, after all the files are
durable. Then the files get their final names. A run that dies before its manifest leaves only
hidden files, which the next run deletes; one that dies after it is finished by the next run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import forebay
from forebay import _forebay
from forebay.durable import replace_file, sync_directory
from forebay.errors import CorruptError
from forebay.options import Progress
from forebay.spark.errors import must
from forebay.spark.jobs.parquet import Piece, write_pieces
from forebay.spark.jobs.work import (
    alone,
    chosen_topics,
    named_topics,
    opened,
    run,
    tasks_at_once,
)
from forebay.spark.options import local
from forebay.spark.ranges import Range, cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay import Store

_HIDDEN = "_forebay"
_MANIFEST = re.compile(r"(\d{8})\.json")
#: Columns that files may be partitioned by.
PARTITIONS = ("topic", "date", "hour", "queue")
#: Parquet compressions.
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
#: The columns of a file, without those that its directory names.
COLUMNS = (
    "topic",
    "queue",
    "offset",
    "position",
    "store_timestamp",
    "born_timestamp",
    "keys",
    "tags",
    "properties",
    "body",
)
#: Maximum messages of a task; if its worker dies, the whole task is repeated.
_TASK_RECORDS_MAX = 4_000_000


@dataclass(frozen=True)
class Export:
    """The result of one run of an export.

    Attributes
    ----------
    path, target
        The store, and where the files are.
    run
        Number of the run; 0 if there was nothing to write.
    rows, files, bytes
        What was written.
    lost
        Messages that were skipped because they are damaged.
    removed
        Number of messages by topic and queue that retention removed before they were exported.
    tasks, seconds
        How many tasks of Spark did it, and how long it took.
    """

    path: str
    target: str
    run: int
    rows: int
    files: int
    bytes: int
    lost: int
    removed: dict[str, int]
    tasks: int
    seconds: float

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


class _End(NamedTuple):
    """Where a queue continues, and the identity of the last exported message; -1 if it is lost."""

    #: Next offset to export.
    offset: int
    #: Position of the message before `offset`.
    position: int = -1
    #: Its store time in milliseconds; manifests of earlier versions have none.
    timestamp: int = -1


@dataclass
class _State:
    """The state of the target: the last run, and where each queue continues."""

    run: int = 0
    #: By topic and queue.
    ends: dict[tuple[str, int], _End] = field(default_factory=dict)
    partition_by: list[str] | None = None


def export(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    partition_by: Sequence[str] = ("topic", "date"),
    compression: str = "zstd",
    fail_on_data_loss: bool = True,
    progress: Progress | None = None,
) -> Export:
    """Write the messages sent since the last export to Parquet files.

    Each message is exported exactly once, however often runs are interrupted. Only durable messages
    are exported, so a crash of the store's machine cannot undo one that was exported.

    Parameters
    ----------
    spark
        The session.
    path
        Directory of the store, live, closed, or written by RocketMQ. Every worker must reach it,
        and the target, under this path.
    target
        Directory for the files, created if it does not exist. It belongs to one store.
    topics
        Topics to export; by default all but RocketMQ's system topics. They may differ between runs.
    partition_by
        Partition directories, outermost first: ``"topic"``, ``"date"``, ``"hour"``, ``"queue"``.
        Dates and hours are those of the store time, in UTC. All runs must use the same.
    compression
        Parquet compression: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"`` or ``"none"``.
    fail_on_data_loss
        Whether to fail if messages were lost to damage, or removed by retention before they were
        exported. Otherwise they are counted.
    progress
        Called with the number of finished tasks and of all tasks; not in a remote session.

    Raises
    ------
    InvalidOptionError
        If an argument has an invalid value.
    CorruptError
        If messages are lost, the log is not the one that was exported before, or the driver does
        not find the files that workers wrote; nothing is exported then. Also if a file of the
        previous run is missing.
    BlockingIOError
        If another export to the target is running.

    Examples
    --------
    >>> forebay.spark.export(spark, "events", "lake").rows  # doctest: +SKIP
    1000000
    """
    began = time.monotonic()
    root, place = local("path", path), local("target", target)
    partitions = _partitions(partition_by)
    named = named_topics(topics)
    if compression not in COMPRESSIONS:
        raise must("compression", compression, f"be one of {', '.join(COMPRESSIONS)}")
    with alone(os.path.join(place, _HIDDEN), place, "export"):
        state = _resume(place)
        if state.partition_by not in (None, partitions):
            rule = f"be the same as in earlier runs, {state.partition_by}"
            raise must("partition_by", partitions, rule)
        with forebay.open(root, mode="r") as store:
            ranges, removed = _plan(store, state, named, fail_on_data_loss)
            ends = _ends(store, ranges)
        messages = sum(len(found) for found in ranges)
        parts = max(2 * tasks_at_once(spark), -(-messages // _TASK_RECORDS_MAX))
        staging = os.path.join(place, _HIDDEN, f"{state.run + 1:08d}.tmp")
        token = uuid.uuid4().hex
        tasks = [
            _Task(token, root, staging, tuple(group), partitions, compression, fail_on_data_loss)
            for group in cut(ranges, parts)
        ]
        outcomes = run(spark, tasks, _write, progress)
        pieces = [piece for outcome in outcomes for piece in outcome[0]]
        lost = sum(outcome[1] for outcome in outcomes)
        if tasks:
            _commit(place, state, partitions, pieces, ends)
    return Export(
        path=root,
        target=place,
        run=state.run + 1 if tasks else 0,
        rows=sum(piece.rows for piece in pieces),
        files=len(pieces),
        bytes=sum(piece.bytes for piece in pieces),
        lost=lost,
        removed=removed,
        tasks=len(tasks),
        seconds=time.monotonic() - began,
    )


def _partitions(given: Sequence[str]) -> list[str]:
    partitions = [given] if isinstance(given, str) else list(given)
    for number, name in enumerate(partitions):
        if name not in PARTITIONS or name in partitions[:number]:
            rule = f"name each of {', '.join(PARTITIONS)} at most once"
            raise must("partition_by", partitions, rule)
    return partitions


def _resume(place: str) -> _State:
    """Read the manifests, finish the last run, and delete the files of unfinished ones."""
    hidden = os.path.join(place, _HIDDEN)
    manifests = map(_MANIFEST.fullmatch, os.listdir(hidden))
    runs = sorted(int(found[1]) for found in manifests if found)
    state = _State()
    for number in runs:
        with open(os.path.join(hidden, f"{number:08d}.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        state.run = number
        state.partition_by = manifest["partition_by"]
        for topic, queue, *end in manifest["ends"]:
            state.ends[topic, queue] = _End(*end)
        if number == runs[-1]:
            _name_files(place, number, manifest["files"])
    for name in os.listdir(hidden):
        if name.endswith(".tmp"):
            shutil.rmtree(os.path.join(hidden, name))
    return state


def _name_files(place: str, number: int, files: list[dict[str, Any]]) -> None:
    """Give the files of a run their final names; safe to repeat after an interruption."""
    staging = os.path.join(place, _HIDDEN, f"{number:08d}.tmp")
    for file in files:
        staged, final = os.path.join(staging, file["staged"]), os.path.join(place, file["path"])
        if os.path.exists(staged):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            os.replace(staged, final)
        elif not os.path.exists(final):
            manifest = os.path.join(_HIDDEN, f"{number:08d}.json")
            reason = f"run {number} wrote this file with {file['rows']} messages, and it is missing"
            reason += f": restore it, or remove it from the files in {manifest}"
            raise CorruptError(f"{final}: {reason}", path=final, position=0, reason=reason)
    for folder in sorted({os.path.dirname(file["path"]) for file in files}):
        _sync_folders(place, folder)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(staging)


def _sync_folders(place: str, folder: str) -> None:
    """Make a folder's entries durable, and its own entry in each folder above it."""
    while True:
        sync_directory(os.path.join(place, folder))
        if not folder:
            return
        folder = os.path.dirname(folder)


def _check_staged(place: str, staging: str, pieces: list[Piece]) -> None:
    """Check that all files of the tasks are complete, and make their names durable.

    Files are missing or short if a worker and the driver do not share the target.
    """
    for piece in pieces:
        path = os.path.join(place, staging, piece.name)
        try:
            size = os.path.getsize(path)
        except FileNotFoundError:
            reason = f"a worker wrote it with {piece.rows} messages, but the driver cannot find it"
        else:
            if size == piece.bytes:
                continue
            reason = f"a worker wrote {piece.bytes} bytes to it, but the driver found {size}"
        reason += "; every worker must reach the target under the same path as the driver"
        message = f"{path}: {reason}; nothing was exported"
        raise CorruptError(message, path=path, position=0, reason=reason)
    if pieces:
        _sync_folders(place, staging)


def _commit(
    place: str,
    state: _State,
    partitions: list[str],
    pieces: list[Piece],
    ends: dict[tuple[str, int], _End],
) -> None:
    number = state.run + 1
    _check_staged(place, os.path.join(_HIDDEN, f"{number:08d}.tmp"), pieces)
    files = [
        {
            "path": os.path.join(*_folders(piece), f"{number:08d}-{piece.name}"),
            "staged": piece.name,
            "rows": piece.rows,
            "bytes": piece.bytes,
        }
        for piece in pieces
    ]
    manifest = {
        "run": number,
        "partition_by": partitions,
        "rows": sum(piece.rows for piece in pieces),
        "ends": [[*queue, *end] for queue, end in sorted(ends.items())],
        "files": files,
    }
    path = Path(place, _HIDDEN, f"{number:08d}.json")
    replace_file(path, json.dumps(manifest, indent=1).encode())
    _sync_folders(place, _HIDDEN)
    _name_files(place, number, files)


def _folders(piece: Piece) -> list[str]:
    # Quoted as Hive does: a topic may have characters that a path cannot.
    return [f"{name}={quote(str(value), safe='')}" for name, value in piece.partition]


def _plan(
    store: Store, state: _State, named: list[str] | None, fail_on_data_loss: bool
) -> tuple[list[Range], dict[str, int]]:
    """Return the ranges to export, and how many of each queue were removed before export."""
    ranges = []
    removed: dict[str, int] = {}
    topics = chosen_topics(store, named)
    durable = _forebay.bounds_below(store, list(topics)).queues
    ends = {(queue.topic, queue.queue): queue.end for queue in durable}
    for name, topic in topics.items():
        for queue in topic.queues:
            end = ends.get((name, queue.id), queue.min_offset)
            exported = state.ends.get((name, queue.id), _End(queue.min_offset))
            _check_same_log(store, (name, queue.id), exported, queue.max_offset)
            start = exported.offset
            if start < queue.min_offset:
                removed[f"{name}-{queue.id}"] = queue.min_offset - start
                start = queue.min_offset
            if start < end:
                ranges.append(Range(str(store.path), name, queue.id, start, end))
    if removed and fail_on_data_loss:
        where, count = next(iter(removed.items()))
        reason = f"retention removed {count} messages of {where} before they were exported"
        raise CorruptError(reason, path=str(store.path), position=0, reason=reason)
    return ranges, removed


def _check_same_log(store: Store, where: tuple[str, int], exported: _End, most: int) -> None:
    """Raise an error if a queue is not the one that earlier runs exported."""
    topic, queue = where
    start, position, timestamp = exported
    reason = ""
    if start > most:
        reason = f"{topic}-{queue} ends at {most}, but was already exported up to {start}"
    elif position >= 0:
        found = store.read(topic, queue, start - 1, 1).messages if start > 0 else []
        # Another log may have a message at the same position, if sizes are equal, but hardly with
        # the same store time.
        if (
            found
            and found[0].offset == start - 1
            and (found[0].position != position or timestamp not in (-1, found[0].store_timestamp))
        ):
            reason = f"message {start - 1} of {topic}-{queue} is not the one that was exported"
    if reason:
        reason += ": the log was cut, or belongs to another store; export to a new directory"
        raise CorruptError(reason, path=str(store.path), position=max(position, 0), reason=reason)


def _ends(store: Store, ranges: list[Range]) -> dict[tuple[str, int], _End]:
    ends = {}
    for found in ranges:
        end = _End(found.end)
        for last in store.read(found.topic, found.queue, found.end - 1, 1).messages:
            if last.offset == found.end - 1:
                end = _End(found.end, last.position, last.store_timestamp)
        ends[found.topic, found.queue] = end
    return ends


@dataclass(frozen=True)
class _Task:
    token: str
    path: str
    staging: str
    ranges: tuple[Range, ...]
    partitions: list[str]
    compression: str
    fail_on_data_loss: bool


def _write(task: _Task) -> tuple[list[Piece], int]:
    """Write the files of a task; return them, and the number of lost messages."""
    store = opened(task.token, task.path)
    os.makedirs(task.staging, exist_ok=True)
    pieces, lost = [], 0
    # The names are unique to this attempt; files of other attempts are deleted later.
    attempt = uuid.uuid4().hex[:16]
    for number, (topic, ranges) in enumerate(_by_topic(task.ranges).items()):
        scan = store.scan(
            topic,
            columns=list(COLUMNS),
            queues=[found.queue for found in ranges],
            start={found.queue: found.start for found in ranges},
            end={found.queue: found.end for found in ranges},
        )
        stem = os.path.join(task.staging, f"{attempt}-{number}")
        found = write_pieces(scan, stem, task.partitions, task.compression)
        missing = sum(map(len, ranges)) - sum(piece.rows for piece in found)
        if missing and task.fail_on_data_loss:
            damage = [*scan.damage, *store.damage]
            reason = f"{missing} messages of {topic} are lost"
            if damage:
                first = damage[0]
                reason += f" to damage, first at {first.position} of {first.path}: {first.reason}"
            path = damage[0].path if damage else task.path
            position = damage[0].position if damage else 0
            raise CorruptError(reason, path=path, position=position, reason=reason)
        pieces += found
        lost += missing
    return pieces, lost


def _by_topic(ranges: Iterable[Range]) -> dict[str, list[Range]]:
    by_topic: dict[str, list[Range]] = {}
    for found in ranges:
        by_topic.setdefault(found.topic, []).append(found)
    return by_topic
