"""The data source: planned in one process, read in many.

Nothing is shared between these but what Spark pickles, so planning opens the store, pins the offsets of
each task, and closes it; each worker opens it again. Batches come from Rust in Spark's own types, and
what lies between is a socket.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import forebay
from forebay import _forebay
from forebay.errors import CorruptError
from forebay.spark.columns import schema_of
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, parse_options
from forebay.spark.plan import Planner, Range, cut, processors

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from forebay import Store

#: Most rows and bytes of bodies of a batch. Larger ones gain nothing, and every task holds one here and
#: one in the JVM.
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

        The ends of all queues are taken here, so a job reads a snapshot, whatever is sent meanwhile.
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
        store = _opened.store(partition.plan, partition.path)
        by_topic: dict[str, list[Range]] = {}
        for found in partition.ranges:
            by_topic.setdefault(found.topic, []).append(found)
        for topic, ranges in by_topic.items():
            yield from self._read_topic(store, topic, ranges)

    def _read_topic(
        self, store: Store, topic: str, ranges: list[Range]
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

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
        missing = sum(len(found) for found in ranges)
        for batch in pyarrow.RecordBatchReader.from_stream(scan):
            missing -= batch.num_rows
            yield batch
        if missing:
            self._report_loss(store, topic, ranges, missing, [*scan.damage, *store.damage])

    def _report_loss(
        self, store: Store, topic: str, ranges: list[Range], missing: int, damage: list[Any]
    ) -> None:
        """Fail for messages that damage has cost, or log them where the options say so.

        Between the first and the last offset of a queue every offset has its message, so a row too few
        is a message lost.
        """
        places = ", ".join(f"{topic}-{r.queue} [{r.start}, {r.end})" for r in ranges[:4])
        more = f" and {len(ranges) - 4} more" if len(ranges) > 4 else ""
        first = damage[0] if damage else None
        reason = f"{missing} messages of {places}{more} are lost to damage"
        if first is not None:
            reason += f", first at {first.position} of {first.path}: {first.reason}"
        if not self._options.fail_on_data_loss:
            _log.warning("%s", reason)
            return
        raise CorruptError(
            f'{reason}; set failOnDataLoss to "false" to read the others',
            path=str(store.path if first is None else first.path),
            position=0 if first is None else first.position,
            reason=reason,
        )


class _Opened:
    """The store that this worker has open; workers run many tasks of a job, one at a time.

    It is kept for the tasks of one plan only. Every action of Spark is planned anew, so nothing stale is
    ever read, not even where the directory has been replaced by another between two actions.
    """

    def __init__(self) -> None:
        self._key: tuple[str, str, int] | None = None
        self._store: Store | None = None

    def store(self, plan: str, path: str) -> Store:
        key = (plan, path, os.getpid())
        if self._store is None or self._key != key:
            self.close()
            self._store = forebay.open(path, mode="r")
            self._key = key
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._key = None


_opened = _Opened()
