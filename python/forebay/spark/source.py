"""The data source: planned in one process, read in many.

Nothing is shared between these but what Spark pickles, so planning opens the store, pins the
offsets of each task, and closes it; each worker opens it again. Batches come from Rust in Spark's
own types and go to the JVM through a socket; no value of a row is touched in Python.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import forebay
from forebay import _forebay
from forebay.errors import CorruptError
from forebay.spark.columns import schema_of
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, parse_options
from forebay.spark.plan import Planner, Range, cut, processors

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from forebay import Store

#: Most rows and bytes of bodies of a batch. Larger ones gain nothing, and every task holds one here
#: and one in the JVM.
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20

_log = logging.getLogger(__name__)


class ForebayDataSource(DataSource):
    """Reads messages of a store; ``spark.read.format("forebay")``."""

    #: How many tasks the session runs at once; `forebay.spark.register` tells.
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "forebay"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return schema_of(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> ForebayReader:
        """Return a reader; the schema is the source's own, and no other is taken."""
        options = parse_options(self.options)
        if schema != schema_of(options.columns):
            reason = "the schema is fixed; the option columns selects and orders columns"
            raise invalid("schema", schema.simpleString(), reason)
        return ForebayReader(options, self.parallelism or processors())


class ForebayPartition(InputPartition):
    """What one task reads."""

    def __init__(self, plan: str, path: str, ranges: list[Range]) -> None:
        self.plan = plan
        self.path = path
        self.ranges = ranges


class ForebayReader(DataSourceReader):
    """Plans a read, and reads its partitions."""

    def __init__(self, options: ReadOptions, parallelism: int) -> None:
        self._options = options
        self._parallelism = parallelism

    def partitions(self) -> list[InputPartition]:
        """Cut what the store holds at this moment into tasks.

        The ends of all queues are taken here: a read is a snapshot, whatever is sent meanwhile.
        Spark plans a DataFrame once, at its first action, so all its actions read the same.
        """
        options = self._options
        # Workers run elsewhere: a relative path is the driver's.
        path = os.path.abspath(options.path)
        with forebay.open(path, mode="r") as store:
            ranges = Planner(store, options).ranges()
        parts = options.min_partitions or self._parallelism
        plan = uuid.uuid4().hex
        groups = cut(ranges, parts, options.records_max)
        # Spark takes no partitions at all for one without a value.
        return [ForebayPartition(plan, path, group) for group in groups or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the batches of a partition."""
        assert isinstance(partition, ForebayPartition)
        if not partition.ranges:
            return
        task = TaskContext.get()
        stage = None if task is None else task.stageId()
        store = _opened.store(partition.plan, partition.path, stage)
        by_topic: dict[str, list[Range]] = {}
        for found in partition.ranges:
            by_topic.setdefault(found.topic, []).append(found)
        for topic, ranges in by_topic.items():
            yield from self._read_topic(store, topic, ranges)

    def _read_topic(
        self, store: Store, topic: str, ranges: list[Range]
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        wanted = sum(len(found) for found in ranges)
        if not self._options.fail_on_data_loss:
            # What retention has removed since the read was planned.
            ranges = list(_still_there(store, ranges))
        arguments: dict[str, Any] = {
            "dialect": "spark",
            "topic": topic,
            "columns": list(self._options.columns),
            "queues": [found.queue for found in ranges],
            "start": {found.queue: found.start for found in ranges},
            "end": {found.queue: found.end for found in ranges},
            "batch_rows": BATCH_ROWS,
            "batch_bytes": BATCH_BYTES,
        }
        scan = _forebay.scan_again(store, arguments)
        for batch in pyarrow.RecordBatchReader.from_stream(scan):
            wanted -= batch.num_rows
            yield batch
        if wanted:
            self._report_loss(store, topic, ranges, wanted, [*scan.damage, *store.damage])

    def _report_loss(
        self, store: Store, topic: str, ranges: list[Range], missing: int, damage: list[Any]
    ) -> None:
        """Fail for messages that are not there, or log them where the options say so.

        Between the first and the last offset of a queue every offset has its message, so a row too
        few is a message lost.
        """
        places = ", ".join(f"{topic}-{r.queue} [{r.start}, {r.end})" for r in ranges[:4])
        more = f" and {len(ranges) - 4} more" if len(ranges) > 4 else ""
        first = damage[0] if damage else None
        reason = f"{missing} messages of {places}{more} are lost"
        if first is not None:
            reason += f" to damage, first at {first.position} of {first.path}: {first.reason}"
        if not self._options.fail_on_data_loss:
            _log.warning("%s", reason)
            return
        raise CorruptError(
            f'{reason}; set failOnDataLoss to "false" to read the others',
            path=first.path if first is not None else str(store.path),
            position=0 if first is None else first.position,
            reason=reason,
        )


def _still_there(store: Store, ranges: list[Range]) -> Iterator[Range]:
    for found in ranges:
        queue = next(q for q in store.topics[found.topic].queues if q.id == found.queue)
        start = min(max(found.start, queue.min_offset), queue.max_offset)
        yield Range(found.topic, found.queue, start, max(start, found.end))


class _Opened:
    """The store that this worker has open; workers run many tasks of a job, one at a time.

    It is kept for the tasks of one stage, no longer: between two actions the directory may have
    been replaced by another, and open files would still show the old one.
    """

    def __init__(self) -> None:
        self._key: tuple[str, str, int | None] | None = None
        self._store: Store | None = None

    def store(self, plan: str, path: str, stage: int | None) -> Store:
        key = (plan, path, stage)
        if self._store is None or self._key != key or stage is None:
            self.close()
            self._store = forebay.open(path, mode="r")
            self._key = key
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._key = None


_opened = _Opened()
