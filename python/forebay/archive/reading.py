"""Reading archives by byte ranges: bounds, times, scans, and verification."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from zlib import crc32

from forebay import _forebay
from forebay.archive.copying import MARKER, check_marker, name_of
from forebay.archive.files import Files, LocalFiles, at
from forebay.errors import (
    CorruptError,
    InvalidOptionError,
    NotAStoreError,
    OffsetOutOfRangeError,
    StoreNotFoundError,
    UnknownTopicError,
)
from forebay.times import milliseconds

if TYPE_CHECKING:
    import os

    import pyarrow  # type: ignore[import-untyped]

    from forebay import Damage

__all__ = ["Archive", "ArchiveDamage", "ArchiveScan", "ArchivedQueue", "ArchivedTopic", "open"]

#: Target size of a fetch, in bytes; blocks are never split.
_FETCH = 8 << 20
#: Concurrent fetches from an object store.
_FETCHES = 4
#: Tables to read concurrently.
_TABLES = 16
#: Number of segments of about equal size to divide the log into, for a job to group into tasks.
_SEGMENTS = 256
#: Maximum number of queue ranges in all segments.
_SEGMENT_RANGES = 20_000

#: The highest offset, and the highest time.
_FAR = (1 << 63) - 1

#: Topic, queue, first offset, exclusive end offset.
Range = tuple[str, int, int, int]
Limit = str | datetime | Mapping[int, int]


@dataclass(frozen=True)
class ArchivedQueue:
    """A queue of an archive: its number, first offset, and exclusive end offset."""

    id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic of an archive, with the queues that have messages in it."""

    name: str
    queues: list[ArchivedQueue]


class ArchiveDamage(NamedTuple):
    """A damaged region of an archive, with the fields of `forebay.Damage`."""

    path: str
    position: int
    length: int
    reason: str
    #: Empty: it is not known which messages are lost.
    lost: list[tuple[str, int, int]] = []  # noqa: RUF012


@dataclass(frozen=True)
class _Fetch:
    """Adjacent blocks of a log file."""

    table: _forebay.BlockTable
    start: int
    end: int
    blocks: list[tuple[int, int]]


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
    if not check_marker(files):
        where = files.describe()
        if files.sizes() or files.sizes("commitlog"):
            reason = f"it is not an archive: it has no {MARKER}"
            raise NotAStoreError(f"{where}: {reason}", path=where, reason=reason)
        raise StoreNotFoundError(f"there is no archive at {where}", path=where)
    names = sorted(files.sizes("blocks"))
    with ThreadPoolExecutor(_TABLES) as readers:
        tables = list(readers.map(lambda name: _table(files, name), names))
    return Archive(files, tables)


def _table(files: Files, name: str) -> _forebay.BlockTable:
    path, log = files.describe(f"blocks/{name}"), files.describe(f"commitlog/{name}")
    table = _forebay.BlockTable(files.read(f"blocks/{name}"), path, log)
    if name_of(table.start) != name:
        reason = f"the table belongs to log file {name_of(table.start)}"
        raise CorruptError(f"corrupt {path}: {reason}", path=path, position=16, reason=reason)
    return table


class Archive:
    """A snapshot of an archive, taken when it was opened.

    Attributes
    ----------
    path
        Path or URI that it was opened with, without user and password.
    topics
        Topics by name, each with its queues and their bounds.
    damage
        Damage that the log had when it was archived, and log files missing between others.
    """

    def __init__(self, files: Files, tables: list[_forebay.BlockTable]) -> None:
        self._files = files
        self._tables = tables
        self.path = files.target

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
        end = None
        for table in self._tables:
            if end is not None and table.start != end:
                path = self._log(end)
                reason = "the archive has no log file for this part of the log"
                found.append(ArchiveDamage(path, end, table.start - end, reason))
            found += table.damage
            end = table.start + table.length
        return found

    def _log(self, start: int) -> str:
        return self._files.describe(f"commitlog/{name_of(start)}")

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
        moment = _millis(time)
        for table in self._tables:
            whole = [(topic, queue, bounds.min_offset, bounds.max_offset)]
            rows = table.blocks
            for number in table.select(whole):
                row = rows[number]
                if row.end_ms < moment:
                    continue
                data = self._read(table, row.position, row.position + row.length)
                path = self._log(table.start)
                found = _forebay.block_offset_at(data, row.position, path, whole, moment)
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

    def _read(self, table: _forebay.BlockTable, start: int, end: int) -> bytes:
        name = f"commitlog/{name_of(table.start)}"
        try:
            return self._files.read(name, start - table.start, end - start)
        except FileNotFoundError:
            # Report a missing file as damage: only its own messages are lost.
            return b""

    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        queues: Iterable[int] | None = None,
        start: Limit | None = "earliest",
        end: Limit | None = "latest",
        tags: str | Iterable[str | bytes] | None = None,
        key: str | bytes | None = None,
        batch_rows: int = 65_536,
        batch_bytes: int = 16 << 20,
        body_type: str = "binary",
        verify: bool = True,
    ) -> ArchiveScan:
        """Read messages as Arrow record batches; needs pyarrow.

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
            "columns": _kept(columns),
            "tags": _kept(tags),
            "key": key,
            "batch_rows": batch_rows,
            "batch_bytes": batch_bytes,
            "body_type": body_type,
            "verify": verify,
        }
        places = {"topic": _kept(topic), "queues": _kept(queues), "start": start, "end": end}
        arguments, places = (
            {name: value for name, value in given.items() if value is not None}
            for given in (arguments, places)
        )
        # The core checks the values and raises the same errors as for a store.
        _forebay.block_schema(arguments | places)
        if isinstance(key, bytes):
            arguments["key"] = key.decode()
        return ArchiveScan(self, arguments, list(self._ranges(**places)))

    def _ranges(
        self,
        topic: str | Iterable[str | bytes] | None = None,
        queues: Iterable[int] | None = None,
        start: Limit = "earliest",
        end: Limit = "latest",
    ) -> Iterator[Range]:
        start, end = _offsets(start), _offsets(end)
        chosen = None if queues is None else {index(queue) for queue in queues}
        names = [topic] if isinstance(topic, str) else list(self.topics if topic is None else topic)
        for name in (name.decode() if isinstance(name, bytes) else name for name in names):
            there = self._topic(name)
            if topic is not None:
                for limit in (chosen or (), start, end):
                    for number in () if isinstance(limit, str | datetime) else limit:
                        self._queue(name, number)
            for queue in there.queues:
                if chosen is None or queue.id in chosen:
                    yield from self._range(name, queue, start, end)

    def _range(self, topic: str, queue: ArchivedQueue, start: Limit, end: Limit) -> Iterator[Range]:
        least, most = queue.min_offset, queue.max_offset
        first = self._bound(topic, queue, start, least)
        last = self._bound(topic, queue, end, most)
        if isinstance(start, Mapping) and not least <= first <= most:
            message = f"{topic}-{queue.id} has no offset {first}; its bounds are {least} to {most}"
            raise OffsetOutOfRangeError(
                message,
                topic=topic,
                queue=queue.id,
                offset=first,
                min_offset=least,
                max_offset=most,
            )
        if max(first, least) < min(last, most):
            yield topic, queue.id, max(first, least), min(last, most)

    def _bound(self, topic: str, queue: ArchivedQueue, limit: Limit, unnamed: int) -> int:
        if isinstance(limit, Mapping):
            return limit.get(queue.id, unnamed)
        if isinstance(limit, datetime):
            return self.offset_at(topic, queue.id, limit)
        return queue.min_offset if limit == "earliest" else queue.max_offset

    def segments(self, ranges: Sequence[Range]) -> list[tuple[Range, int]]:
        """Divide ranges into pieces of the log, each with its average record size in bytes.

        The ranges of all queues are cut at the same positions of the log, and the pieces come in
        log order. A task that takes adjacent pieces reads adjacent blocks. A task that took one
        whole queue would also have to read the messages of other queues in between.
        """
        wanted = list(ranges)
        weights = [table.weights(wanted) for table in self._tables]
        parts = max(1, min(_SEGMENTS, _SEGMENT_RANGES // max(len(wanted), 1)))
        size = max(1, -(-sum(map(sum, weights)) // parts))
        ends = {(topic, queue): end for topic, queue, _, end in wanted}
        begun = {(topic, queue): start for topic, queue, start, _ in wanted}
        known = dict(begun)
        pieces: list[tuple[Range, int]] = []

        def cut(until: Mapping[tuple[str, int], int], weight: int) -> None:
            found = [
                (*queue, start, min(until.get(queue, start), ends[queue]))
                for queue, start in begun.items()
            ]
            found = [piece for piece in found if piece[2] < piece[3]]
            records = sum(piece[3] - piece[2] for piece in found)
            pieces.extend((piece, max(weight // records, 1)) for piece in found)
            begun.update({(piece[0], piece[1]): piece[3] for piece in found})

        weight = 0
        for table, by_block in zip(self._tables, weights, strict=True):
            for block, some in enumerate(by_block):
                if weight >= size:
                    before = {(t, queue): end for t, queue, end in table.ends_before(block)}
                    cut(known | before, weight)
                    weight = 0
                weight += some
            known |= {(row.topic, row.queue): row.end for row in table.queues}
        # Include offsets that no block holds; their reader reports them as lost.
        cut(ends, weight)
        return pieces

    def read(
        self,
        ranges: Sequence[Range],
        arguments: Mapping[str, Any],
        damage: list[Damage | ArchiveDamage],
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read the messages in ranges; append each skipped region to `damage`."""
        import pyarrow

        ranges = list(ranges)
        for fetch, data in self._fetched(self._plan(ranges, arguments.get("key"))):
            scan = _forebay.scan_blocks(
                data,
                fetch.start,
                self._log(fetch.table.start),
                fetch.blocks,
                ranges,
                dict(arguments),
            )
            yield from pyarrow.RecordBatchReader.from_stream(scan)
            damage += scan.damage

    def _plan(self, ranges: list[Range], key: str | None) -> Iterator[_Fetch]:
        for table in self._tables:
            numbers = table.select(ranges)
            if key is not None and numbers:
                found = self._blocks_of(table, {topic for topic, *_ in ranges}, key)
                numbers = [number for number in numbers if number in found]
            yield from _fetches(table, numbers)

    def _blocks_of(self, table: _forebay.BlockTable, topics: set[str], key: str) -> set[int]:
        name = f"keys/{name_of(table.start)}"
        path = self._files.describe(name)
        found: set[int] = set()
        for topic in topics:
            start, end = table.key_range(topic, key)
            if start == end:
                continue
            try:
                data = self._files.read(name, start, end - start)
                found.update(table.key_blocks(topic, key, data, path))
            except (FileNotFoundError, CorruptError):
                # The key table only narrows the search; without it every block is scanned.
                return set(range(len(table.blocks)))
        return found

    def _fetched(self, plan: Iterator[_Fetch]) -> Iterator[tuple[_Fetch, bytes]]:
        """Yield the data of each fetch; from an object store, fetch ahead."""
        if isinstance(self._files, LocalFiles):
            for fetch in plan:
                yield fetch, self._read(fetch.table, fetch.start, fetch.end)
            return
        under_way: deque[tuple[_Fetch, Future[bytes]]] = deque()
        with ThreadPoolExecutor(_FETCHES) as readers:
            try:
                for fetch in plan:
                    future = readers.submit(self._read, fetch.table, fetch.start, fetch.end)
                    under_way.append((fetch, future))
                    if len(under_way) == _FETCHES:
                        first, data = under_way.popleft()
                        yield first, data.result()
                while under_way:
                    first, data = under_way.popleft()
                    yield first, data.result()
            finally:
                for _, data in under_way:
                    data.cancel()

    def verify(
        self, progress: Callable[[int, int], object] | None = None
    ) -> list[Damage | ArchiveDamage]:
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
        found = list(self.damage)
        total = sum(table.length for table in self._tables)
        done = 0
        for table in self._tables:
            every = range(len(table.blocks))
            for fetch, data in self._fetched(_fetches(table, every)):
                at = 0
                for length, checksum in fetch.blocks:
                    block = memoryview(data)[at : at + length]
                    if len(block) < length or crc32(block) != checksum:
                        reason = "the bytes differ from those that were archived"
                        if len(block) < length:
                            reason = "the log file ends before this block does"
                        path = self._log(table.start)
                        found.append(ArchiveDamage(path, fetch.start + at, length, reason))
                    at += length
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


def _fetches(table: _forebay.BlockTable, numbers: Iterable[int]) -> Iterator[_Fetch]:
    """Join adjacent blocks into fetches."""
    rows = table.blocks
    fetch: _Fetch | None = None
    for number in numbers:
        row = rows[number]
        end, block = row.position + row.length, (row.length, row.checksum)
        if fetch is not None and fetch.end == row.position and row.position - fetch.start < _FETCH:
            fetch = _Fetch(table, fetch.start, end, [*fetch.blocks, block])
            continue
        if fetch is not None:
            yield fetch
        fetch = _Fetch(table, row.position, end, [block])
    if fetch is not None:
        yield fetch


def _millis(time: datetime | int) -> int:
    """Return a time in milliseconds, rounded up."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            reason = "it has no time zone: give one, as in datetime.now(timezone.utc)"
            message = f"time is {time}: {reason}"
            raise InvalidOptionError(message, name="time", value=str(time), reason=reason)
        return milliseconds(time)[1]
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        kind = type(time).__name__
        raise TypeError(f"time must be an aware datetime or integer milliseconds, got {kind}")
    # No message has a time beyond these bounds.
    return max(-_FAR - 1, min(index(time), _FAR))


def _kept(value: Any) -> Any:
    """Return an argument in a form that can be iterated more than once."""
    return list(value) if isinstance(value, Iterator) else value


def _offsets(limit: Any) -> Any:
    """Return a start or end of a scan, with queues and offsets as plain int."""
    if not isinstance(limit, Mapping):
        return limit
    return {index(queue): min(index(offset), _FAR) for queue, offset in limit.items()}


class ArchiveScan:
    """A scan of an archive; each call of ``__arrow_c_stream__`` starts a new read.

    Attributes
    ----------
    damage
        Damage that the streams of this scan have skipped so far.
    """

    def __init__(self, archive: Archive, arguments: Mapping[str, Any], ranges: list[Range]) -> None:
        self._archive = archive
        self._arguments = arguments
        self._ranges = ranges
        self.damage: list[Damage | ArchiveDamage] = []

    def __arrow_c_schema__(self) -> object:
        """Export the schema of the batches."""
        return _forebay.block_schema(dict(self._arguments))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export a new stream."""
        import pyarrow

        schema = pyarrow.schema(self)
        batches = self._archive.read(self._ranges, self._arguments, self.damage)
        reader = pyarrow.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)
