"""Reading messages: planned in one process, read in many.

These processes share only what Spark pickles. So planning opens the store, fixes the offsets of
each task, and closes the store; each worker opens it again. Batches come from Rust in Spark's own
types and go to the JVM through a socket; Python touches no value of a row.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from forebay import _forebay
from forebay.archive import Archive
from forebay.errors import CorruptError
from forebay.redact import redacted
from forebay.spark.columns import select
from forebay.spark.errors import refused
from forebay.spark.filters import Pushed, take
from forebay.spark.options import ReadOptions
from forebay.spark.plan import Planner
from forebay.spark.ranges import Range, cut, share
from forebay.spark.stores import (
    OPENED,
    UNREADABLE,
    Life,
    Source,
    expand,
    is_partition_log,
    open_source,
)

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from forebay import Store, Topic
    from forebay.spark.stores import Damaged

#: Maximum rows, and bytes of bodies, of a batch. Larger batches are no faster, and every task holds
#: one here and one in the JVM.
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20

_log = logging.getLogger(__name__)


class ForebayPartition(InputPartition):
    """What one task reads."""

    def __init__(
        self, plan: str, ranges: list[Range], lives: Mapping[str, Life] | None = None
    ) -> None:
        self.plan = plan
        self.ranges = ranges
        #: The lives, by path, of stores that a worker may keep open between tasks. A changed life
        #: means that the store must be opened again.
        self.lives = lives or {}


class ForebayReader(DataSourceReader):
    """Plans a read, and reads its partitions."""

    def __init__(self, options: ReadOptions, parallelism: int) -> None:
        self._options = options
        self._parallelism = parallelism
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Divide the current content of the stores into tasks.

        The ends of all queues are fixed here: a read is a snapshot, whatever is sent meanwhile.
        Spark plans a DataFrame once, at its first action, so all its actions read the same rows.
        """
        parts = self._options.min_partitions or self._parallelism
        try:
            ranges = self._ranges()
        except NotImplementedError as error:
            raise refused(error) from error
        if self._pushed.lookups is None:
            groups = cut(ranges, parts, self._options.records_max)
        else:
            groups = share(ranges, parts)
        plan = uuid.uuid4().hex
        # Given no partitions, Spark would make one with the value None.
        return [ForebayPartition(plan, group) for group in groups or [[]]]

    def _ranges(self) -> list[Range]:
        planner = Planner(self._options, self._pushed)
        paths = expand(self._options.paths)
        asked = [path for path in paths if self._pushed.has(path)]
        ranges = []
        unreadable = []
        for path in asked:
            try:
                with open_source(path, committed=self._options.committed) as store:
                    ranges += planner.ranges(store)
            except UNREADABLE as error:
                self._skip(path, error)
                unreadable.append(error)
        if unreadable and len(unreadable) == len(asked):
            # If no store can be read, fail: an empty result would hide it.
            raise unreadable[0]
        if not unreadable and asked == paths:
            # Otherwise a name may be in a store that was not opened.
            planner.check()
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the batches of a partition."""
        assert isinstance(partition, ForebayPartition)
        task = TaskContext.get()
        stage = None if task is None else task.stageId()
        committed = self._options.committed
        for path, ranges in groupby(partition.ranges, lambda found: found.store):
            try:
                life = partition.lives.get(path)
                if life is not None:
                    token = (life, committed)
                    store = OPENED.store("stream", path, token, committed=committed)
                else:
                    read = None if stage is None else (partition.plan, stage)
                    store = OPENED.store("read", path, read, committed=committed)
            except UNREADABLE as error:
                self._skip(path, error)
                continue
            yield from self._read_store(store, ranges)

    def _skip(self, path: str, error: Exception) -> None:
        """Raise the error of a store, or log it if ``failOnDataLoss`` is false."""
        if self._options.fail_on_data_loss:
            error.add_note(f'store: {redacted(path)}; set failOnDataLoss to "false" to skip it')
            raise error
        _log.warning("skipping store %s: %s", redacted(path), error)

    def _read_store(self, store: Source, ranges: Iterable[Range]) -> Iterator[pyarrow.RecordBatch]:
        if isinstance(store, Archive):
            yield from self._read_archive(store, list(ranges))
            return
        topics = None if self._options.fail_on_data_loss else store.topics
        for topic, found in groupby(ranges, lambda found: found.topic):
            wanted = list(found)
            there = wanted
            if topics is not None:
                # Leave out what retention has deleted since the read was planned.
                there = list(_still_there(topics.get(topic), wanted))
            yield from self._read_topic(store, topic, wanted, there)

    def _read_topic(
        self, store: Store, topic: str, wanted: list[Range], there: list[Range]
    ) -> Iterator[pyarrow.RecordBatch]:
        columns = self._options.columns
        arguments = self._arguments()
        arguments |= {
            "topic": topic,
            "queues": [found.queue for found in there],
            "start": {found.queue: found.start for found in there},
            "end": {found.queue: found.end for found in there},
        }
        rows = 0
        damage: list[Damaged] = []
        scan = partial(_scan, store, damage)
        read = self._compared if is_partition_log(store) else self._scans
        for batch in read(scan, arguments) if there else ():
            rows += batch.num_rows
            yield select(batch, columns, store.path)
        damage += store.damage
        missing = sum(len(found) for found in wanted) - rows
        if self._pushed.selective or is_partition_log(store):
            # Rows cannot be counted: filters, compaction and transactions leave some out.
            missing = sum(len(found) for found in wanted) - sum(len(found) for found in there)
            missing += _lost(damage, there) + _cut(store, there)
        if missing:
            self._report_loss(store, wanted, missing, damage)

    def _read_archive(self, archive: Archive, ranges: list[Range]) -> Iterator[pyarrow.RecordBatch]:
        """Read all topics in one pass, as a block contains messages of several topics."""
        rows = 0
        met: list[Damaged] = []

        def scan(arguments: dict[str, Any]) -> Iterator[pyarrow.RecordBatch]:
            return archive._read(ranges, arguments, met)

        for batch in self._scans(scan, self._arguments()):
            rows += batch.num_rows
            yield select(batch, self._options.columns, archive.path)
        # Damage archived with the log counts only through its missing messages; any other damage
        # means that the archive itself has changed.
        known = {(str(found.path), found.position) for found in archive.damage}
        changed = [found for found in met if (str(found.path), found.position) not in known]
        damage = [*changed, *archive.damage]
        missing = sum(len(found) for found in ranges) - rows
        if self._pushed.selective or is_partition_log(archive):
            # Rows cannot be counted: filters and compaction leave some out.
            missing = _lost(damage, ranges)
        if missing or changed:
            self._report_loss(archive, ranges, missing, damage)

    def _arguments(self) -> dict[str, Any]:
        # A scan has no column `store`, and needs at least one column.
        scanned = [name for name in self._options.columns if name != "store"] or ["offset"]
        arguments: dict[str, Any] = {
            "dialect": "spark",
            "columns": scanned,
            "batch_rows": BATCH_ROWS,
            "batch_bytes": BATCH_BYTES,
        }
        if self._pushed.tags is not None:
            arguments["tags"] = self._pushed.tags
        return arguments

    def _compared(
        self,
        scan: Callable[[dict[str, Any]], Iterator[pyarrow.RecordBatch]],
        arguments: dict[str, Any],
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read all rows of a partition log, and compare them with the filters."""
        columns = dict.fromkeys([*arguments["columns"], *self._pushed.compared()])
        yield from map(self._pushed.compare, scan(arguments | {"columns": list(columns)}))

    def _scans(
        self,
        scan: Callable[[dict[str, Any]], Iterator[pyarrow.RecordBatch]],
        arguments: dict[str, Any],
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read the rows that may pass the filters."""
        if self._pushed.lookups is None:
            yield from scan(arguments)
            return
        import pyarrow.compute  # type: ignore[import-untyped]

        for lookup in self._pushed.lookups:
            columns = list(dict.fromkeys([*arguments["columns"], lookup.column]))
            for batch in scan(arguments | {"columns": columns, "key": lookup.key}):
                # A message with several keys is found by each; keep it only for the key in the
                # column.
                meant = pyarrow.compute.equal(batch.column(lookup.column), lookup.value)
                yield batch.filter(meant)

    def _report_loss(
        self, store: Source, ranges: list[Range], missing: int, damage: list[Damaged]
    ) -> None:
        """Raise an error for missing messages, or log them if ``failOnDataLoss`` is false."""
        places = ", ".join(f"{r.topic}-{r.queue} [{r.start}, {r.end})" for r in ranges[:4])
        more = f" and {len(ranges) - 4} more" if len(ranges) > 4 else ""
        first = damage[0] if damage else None
        reason = f"{missing} messages of {places}{more} in {store.path} are lost"
        if first is not None:
            reason += f" to damage, first at {first.position} of {first.path}: {first.reason}"
        elif retired := _retired(store, ranges):
            reason += f" to retention: {retired}"
        if missing == 0:
            reason = f"{store.path} has changed since it was archived{reason.partition(' lost')[2]}"
        if not self._options.fail_on_data_loss:
            _log.warning("%s", reason)
            return
        raise CorruptError(
            f'{reason}; set failOnDataLoss to "false" to read the rest',
            path=first.path if first is not None else str(store.path),
            position=0 if first is None else first.position,
            reason=reason,
        )


class PushdownReader(ForebayReader):
    """A reader that takes over filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that narrow the read; return those that Spark still evaluates."""
        self._pushed, left = take(filters)
        return left


def _scan(
    store: Store, damage: list[Damaged], arguments: dict[str, Any]
) -> Iterator[pyarrow.RecordBatch]:
    """Scan a store, and add the damage found to `damage`."""
    import pyarrow

    scan = _forebay.scan_again(store, arguments)
    yield from pyarrow.RecordBatchReader.from_stream(scan)
    damage += scan.damage


def _lost(damage: list[Damaged], ranges: list[Range]) -> int:
    """Return how many messages of these ranges may be lost, when rows cannot be counted.

    Damage in the log whose messages are unknown counts as one: it may have hit a wanted message.
    """
    bounds = {(found.topic, found.queue): found for found in ranges}
    lost = set()
    for found in damage:
        if not found.lost and found.kind == "log":
            lost.add((found.path, 0, found.position))
        for topic, queue, offset in found.lost:
            within = bounds.get((topic, queue))
            if within is not None and within.start <= offset < within.end:
                lost.add((topic, queue, offset))
    return len(lost)


def _cut(store: Store, ranges: list[Range]) -> int:
    """Return how many offsets of these ranges a partition log no longer has at its ends."""
    if not is_partition_log(store):
        return 0
    topics = store.topics
    ends = {
        (found.topic, queue.id): queue.max_offset
        for found in ranges
        for queue in (topics[found.topic].queues if found.topic in topics else ())
    }
    cut = (
        found.end - max(ends.get((found.topic, found.queue), 0), found.start) for found in ranges
    )
    return sum(count for count in cut if count > 0)


def _retired(store: Source, ranges: list[Range]) -> str | None:
    """Describe the first queue that now begins after the start of its range, if there is one."""
    topics: Mapping[str, Topic] = {} if isinstance(store, Archive) else store.topics
    for found in ranges:
        for left in _still_there(topics.get(found.topic), [found]):
            if left.start > found.start:
                return f"{found.topic}-{found.queue} now begins at {left.start}"
    return None


def _still_there(topic: Topic | None, ranges: list[Range]) -> Iterator[Range]:
    queues = {} if topic is None else {queue.id: queue for queue in topic.queues}
    for found in ranges:
        queue = queues.get(found.queue)
        if queue is not None:
            start = min(max(found.start, queue.min_offset), queue.max_offset)
            yield replace(found, start=start, end=max(start, found.end))
