"""Reading archives by byte ranges: bounds, times, scans, and verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

from forebay import _forebay
from forebay.archive.blocks import LogFiles, fetches
from forebay.archive.files import Files, at
from forebay.archive.marker import MARKER, PARTITION_LOG, kind_of
from forebay.archive.names import folder_of, name_of
from forebay.archive.parts import ArchiveDamage, ArchivedQueue, ArchivedTopic, Range
from forebay.archive.scan import ArchiveScan, iterable, milliseconds_of, plain_offsets
from forebay.archive.tables import LogFile, log_files, segments
from forebay.errors import (
    NotAStoreError,
    StoreNotFoundError,
    UnknownTopicError,
)
from forebay.given import check_function
from forebay.options import BodyType, Bound, EngineName, Progress

if TYPE_CHECKING:
    import os

    import pyarrow  # type: ignore[import-untyped]

    from forebay import Damage
    from forebay._forebay import _OffsetRange

__all__ = ["Archive", "open"]

#: Number of segments of about equal size to divide the log into, for a job to group into tasks.
_SEGMENTS = 256
#: Maximum number of queue ranges in all segments.
_SEGMENT_RANGES = 20_000


def open(target: str | os.PathLike[str], *, filesystem: Any = None) -> Archive:
    """Open an archive for reading.

    Parameters
    ----------
    target
        A directory, a URI such as ``"s3://bucket/prefix"``, or a path in `filesystem`.
    filesystem
        A pyarrow or fsspec file system.

    Returns
    -------
    Archive
        A snapshot of the archive; open it again to see files added later.

    Raises
    ------
    StoreNotFoundError
        If there is nothing at `target`.
    NotAStoreError
        If there is something other than an archive at `target`.
    CorruptError
        If a table of blocks is damaged.
    """
    files = at(target, filesystem)
    kind = kind_of(files)
    if kind is None:
        where = files.describe()
        if files.sizes() or files.sizes("commitlog"):
            reason = f"it is not an archive: it has no {MARKER}"
            raise NotAStoreError(f"{where}: {reason}", path=where, reason=reason)
        raise StoreNotFoundError(f"there is no archive at {where}", path=where)
    is_partition_log = kind == PARTITION_LOG
    found = segments(files) if is_partition_log else log_files(files)
    return Archive(files, found, is_partition_log=is_partition_log)


class Archive:
    """A snapshot of an archive, taken when it was opened.

    Attributes
    ----------
    path
        Path or URI that it was opened with, without user and password.
    engine
        The engine of the stores that it is of: ``"commitlog"`` or ``"partitionlog"``.
    topics
        Topics by name, each with its queues and their bounds.
    damage
        Damage that the log had when it was archived, and log files missing between others.
    """

    def __init__(self, files: Files, found: list[LogFile], *, is_partition_log: bool) -> None:
        self._files = files
        self._found = found
        self._logs = LogFiles(files, found)
        self.path = files.target
        self._is_partition_log = is_partition_log
        self.engine: EngineName = "partitionlog" if is_partition_log else "commitlog"

    @property
    def _tables(self) -> list[_forebay.BlockTable]:
        return [file.table for file in self._found]

    @cached_property
    def _queues(self) -> dict[tuple[str, int], ArchivedQueue]:
        bounds: dict[tuple[str, int], tuple[int, int]] = {}
        for table in self._tables:
            for row in table.queues:
                least, most = bounds.get((row.topic, row.queue), (row.start, row.end))
                bounds[row.topic, row.queue] = (min(least, row.start), max(most, row.end))
        return {
            (topic, queue): ArchivedQueue(queue, least, most)
            for (topic, queue), (least, most) in sorted(bounds.items())
        }

    @cached_property
    def topics(self) -> dict[str, ArchivedTopic]:
        """Topics by name, each with its queues and their bounds."""
        topics: dict[str, ArchivedTopic] = {}
        for (name, _), queue in self._queues.items():
            topics.setdefault(name, ArchivedTopic(name, [])).queues.append(queue)
        return topics

    @cached_property
    def damage(self) -> list[Damage | ArchiveDamage]:
        """Damage that the log had when it was archived, and missing log files."""
        found: list[Damage | ArchiveDamage] = []
        ends: dict[tuple[str, int], int] = {}
        for file in self._found:
            log, start = file.start
            if start > ends.get(log, start):
                found.append(self._gap(file, ends[log], start))
            found += file.table.damage
            ends[log] = file.end
        return found

    def _gap(self, after: LogFile, end: int, start: int) -> ArchiveDamage:
        """Return the damage of files that are missing before another."""
        if after.queue is None:
            path = self._files.describe(f"commitlog/{name_of(end)}")
            reason = "the archive has no log file for this part of the log"
            return ArchiveDamage(path, end, start - end, reason)
        path = self._files.describe(folder_of(*after.queue))
        reason = f"the archive has no segment with the offsets {end} to {start - 1}"
        return ArchiveDamage(path, 0, 0, reason)

    def offset_at(self, topic: str, queue: int, time: datetime | int) -> int:
        """Return the offset of the first message stored at or after a time.

        If there is none, return the end offset of the queue.

        Raises
        ------
        UnknownTopicError
            If the archive has no such topic or queue.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, got {type(topic).__name__}")
        # The core checks `queue` and raises the same errors as for a store.
        _forebay.block_schema({"queues": [queue]})
        bounds = self._queue(topic, queue)
        moment = milliseconds_of(time)
        for file in self._found:
            table = file.table
            whole = [Range(topic, queue, bounds.min_offset, bounds.max_offset)]
            rows = table.blocks
            for number in table.select(whole):
                row = rows[number]
                if row.end_ms < moment:
                    continue
                data = self._logs.read(file, row.position, row.position + row.length)
                path = self._logs.path(file)
                found = _forebay.block_offset_at(
                    data, row.position, path, whole, moment, file.queue
                )
                if found is not None:
                    return found
        return bounds.max_offset

    def _topic(self, name: str) -> ArchivedTopic:
        if name not in self.topics:
            raise UnknownTopicError(f"there is no topic {name!r} in {self.path}", topic=name)
        return self.topics[name]

    def _queue(self, topic: str, queue: int) -> ArchivedQueue:
        self._topic(topic)
        if (topic, queue) not in self._queues:
            message = f"topic {topic!r} has no queue {queue} in {self.path}"
            raise UnknownTopicError(message, topic=topic, queue=queue)
        return self._queues[topic, queue]

    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        queues: Iterable[int] | None = None,
        start: Bound | None = "earliest",
        end: Bound | None = "latest",
        tags: str | Iterable[str | bytes] | None = None,
        key: str | bytes | None = None,
        batch_rows: int = 65_536,
        batch_bytes: int = 16 << 20,
        body_type: BodyType = "binary",
        verify: bool = True,
    ) -> ArchiveScan:
        """Read messages as Arrow record batches.

        The arguments are those of `Store.scan`. Messages come in log order, which within a queue is
        offset order.

        Raises
        ------
        UnknownTopicError
            If the archive has no such topic, or a given topic has no such queue.
        OffsetOutOfRangeError
            If a start offset is outside its queue.
        InvalidOptionError
            If an argument has an invalid value.
        """
        arguments: dict[str, Any] = {
            "columns": iterable(columns),
            "tags": iterable(tags),
            "key": key,
            "batch_rows": batch_rows,
            "batch_bytes": batch_bytes,
            "body_type": body_type,
            "verify": verify,
        }
        places = {"topic": iterable(topic), "queues": iterable(queues), "start": start, "end": end}
        arguments, places = (
            {name: value for name, value in given.items() if value is not None}
            for given in (arguments, places)
        )
        # The core checks the values and raises the same errors as for a store.
        _forebay.block_schema(arguments | places)
        if isinstance(key, bytes):
            # Tables of keys are of text.
            with suppress(UnicodeDecodeError):
                arguments["key"] = key.decode()
        ranges = list(self._ranges(**places))
        return ArchiveScan(
            self.path, lambda damage: self._scans(ranges, arguments, damage), arguments
        )

    def _ranges(
        self,
        topic: str | Iterable[str | bytes] | None = None,
        queues: Iterable[int] | None = None,
        start: Bound = "earliest",
        end: Bound = "latest",
    ) -> Iterator[Range]:
        start, end = plain_offsets(start), plain_offsets(end)
        chosen = None if queues is None else {index(queue) for queue in queues}
        names = [topic] if isinstance(topic, str) else list(self.topics if topic is None else topic)
        for name in (name.decode() if isinstance(name, bytes) else name for name in names):
            there = self._topic(name)
            if topic is not None:
                for limit in (chosen or (), start, end):
                    for number in () if isinstance(limit, str | datetime) else limit:
                        self._queue(name, number)
            known = [it for it in there.queues if chosen is None or it.id in chosen]
            for found in _forebay.offsets_between(self, name, known, start, end):
                if found.start < found.end:
                    yield Range(name, found.queue, found.start, found.end)

    def _segments(self, ranges: Sequence[_OffsetRange]) -> list[tuple[Range, int]]:
        """Divide ranges into pieces of the log, each with its average record size in bytes.

        The ranges of all queues are cut at the same positions of the log, and the pieces come in
        log order. A task that takes adjacent pieces reads adjacent blocks. A task that took one
        whole queue would also have to read the messages of other queues in between.
        """
        wanted = list(ranges)
        weights = [table.weights(wanted) for table in self._tables]
        parts = max(1, min(_SEGMENTS, _SEGMENT_RANGES // max(len(wanted), 1)))
        size = max(1, -(-sum(map(sum, weights)) // parts))
        ends = {(it.topic, it.queue): it.end for it in wanted}
        begun = {(it.topic, it.queue): it.start for it in wanted}
        known = dict(begun)
        pieces: list[tuple[Range, int]] = []

        def cut(until: Mapping[tuple[str, int], int], weight: int) -> None:
            found = [
                Range(*queue, start, min(until.get(queue, start), ends[queue]))
                for queue, start in begun.items()
            ]
            found = [piece for piece in found if piece.start < piece.end]
            records = sum(piece.end - piece.start for piece in found)
            pieces.extend((piece, max(weight // records, 1)) for piece in found)
            begun.update({(piece.topic, piece.queue): piece.end for piece in found})

        weight = 0
        for table, by_block in zip(self._tables, weights, strict=True):
            for block, some in enumerate(by_block):
                if weight >= size:
                    before = table.ends_before(block)
                    cut(known | {(it.topic, it.queue): it.end for it in before}, weight)
                    weight = 0
                weight += some
            known |= {(row.topic, row.queue): row.end for row in table.queues}
        # Include offsets that no block holds; their reader reports them as lost.
        cut(ends, weight)
        return pieces

    def _read(
        self,
        ranges: Sequence[_OffsetRange],
        arguments: Mapping[str, Any],
        damage: list[Damage | ArchiveDamage],
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read the messages in ranges; append each skipped region to `damage`."""
        import pyarrow

        for scan in self._scans(ranges, arguments, damage):
            yield from pyarrow.RecordBatchReader.from_stream(scan)

    def _scans(
        self,
        ranges: Sequence[_OffsetRange],
        arguments: Mapping[str, Any],
        damage: list[Damage | ArchiveDamage],
    ) -> Iterator[_forebay.BlockScan]:
        """Yield a scan for each fetch; append what it skips to `damage`, once it has been read."""
        ranges = list(ranges)
        for fetch, data in self._logs.fetched(self._logs.plan(ranges, arguments.get("key"))):
            scan = _forebay.scan_blocks(
                data,
                fetch.start,
                self._logs.path(fetch.file),
                fetch.blocks,
                ranges,
                dict(arguments),
                fetch.file.queue,
            )
            yield scan
            damage += scan.damage

    def verify(self, progress: Progress | None = None) -> list[Damage | ArchiveDamage]:
        """Read all log files and compare them with the checksums taken when they were archived.

        Parameters
        ----------
        progress
            Called with the bytes checked so far and in total; an exception from it stops the check.

        Returns
        -------
        list
            `damage`, and every block whose bytes differ from those that were archived.
        """
        if progress is not None:
            check_function("progress", progress, "callable, or None")
        found = list(self.damage)
        total = sum(table.length for table in self._tables)
        done = 0
        for file in self._found:
            every = range(len(file.table.blocks))
            for fetch, data in self._logs.fetched(fetches(file, every)):
                at = 0
                for block in fetch.blocks:
                    there = memoryview(data)[at : at + block.length]
                    if len(there) < block.length or crc32(there) != block.checksum:
                        reason = "the bytes differ from those that were archived"
                        if len(there) < block.length:
                            reason = "the log file ends before this block does"
                        path = self._logs.path(file)
                        found.append(ArchiveDamage(path, fetch.start + at, block.length, reason))
                    at += block.length
                done += at
                if progress is not None:
                    progress(done, total)
        return found

    def close(self) -> None:
        """Do nothing: an archive holds no resources that must be released."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Archive {self.path!r} of {len(self._tables)} log files>"
