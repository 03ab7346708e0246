"""The data source: planned in one process, read in many.

Nothing is shared between these but what Spark pickles, so planning opens the store, pins the
offsets of each task, and closes it; each worker opens it again. Batches come from Rust in Spark's
own types and go to the JVM through a socket; no value of a row is touched in Python.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import forebay
from forebay import _forebay
from forebay.errors import CorruptError
from forebay.spark.columns import schema_of, with_store
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, parse_options
from forebay.spark.plan import Planner, Range, cut, processors
from forebay.spark.stores import UNREADABLE, Opened, expand

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from forebay import Store, Topic

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

    def __init__(self, plan: str, ranges: list[Range]) -> None:
        self.plan = plan
        self.ranges = ranges


class ForebayReader(DataSourceReader):
    """Plans a read, and reads its partitions."""

    def __init__(self, options: ReadOptions, parallelism: int) -> None:
        self._options = options
        self._parallelism = parallelism

    def partitions(self) -> list[InputPartition]:
        """Cut what the stores hold at this moment into tasks.

        The ends of all queues are taken here: a read is a snapshot, whatever is sent meanwhile.
        Spark plans a DataFrame once, at its first action, so all its actions read the same.
        """
        parts = self._options.min_partitions or self._parallelism
        groups = cut(self._ranges(), parts, self._options.records_max)
        plan = uuid.uuid4().hex
        # Spark takes no partitions at all for one without a value.
        return [ForebayPartition(plan, group) for group in groups or [[]]]

    def _ranges(self) -> list[Range]:
        planner = Planner(self._options)
        paths = expand(self._options.paths)
        ranges = []
        unreadable = []
        for path in paths:
            try:
                with forebay.open(path, mode="r") as store:
                    ranges += planner.ranges(store)
            except UNREADABLE as error:
                self._pass_over(path, error)
                unreadable.append(error)
        if len(unreadable) == len(paths):
            # A read of nothing would hide that there is nothing to read.
            raise unreadable[0]
        if not unreadable:
            # What is named may be in a store that cannot be asked.
            planner.check()
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the batches of a partition."""
        assert isinstance(partition, ForebayPartition)
        task = TaskContext.get()
        stage = None if task is None else task.stageId()
        for path, ranges in groupby(partition.ranges, lambda found: found.store):
            try:
                store = _opened.store(partition.plan, path, stage)
            except UNREADABLE as error:
                self._pass_over(path, error)
                continue
            yield from self._read_store(store, ranges)

    def _pass_over(self, path: str, error: Exception) -> None:
        """Raise an error for a store, or log it where the options say so."""
        if self._options.fail_on_data_loss:
            error.add_note(f"the store is {path}; failOnDataLoss = false passes over it")
            raise error
        _log.warning("the store %s is passed over: %s", path, error)

    def _read_store(self, store: Store, ranges: Iterable[Range]) -> Iterator[pyarrow.RecordBatch]:
        topics = None if self._options.fail_on_data_loss else store.topics
        for topic, found in groupby(ranges, lambda found: found.topic):
            wanted = list(found)
            there = wanted
            if topics is not None:
                # What retention has removed since the read was planned.
                there = list(_still_there(topics.get(topic), wanted))
            yield from self._read_topic(store, topic, wanted, there)

    def _read_topic(
        self, store: Store, topic: str, wanted: list[Range], there: list[Range]
    ) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        missing = sum(len(found) for found in wanted)
        columns = self._options.columns
        # A scan knows nothing of the store that it is of, and has one column at the least.
        scanned = [name for name in columns if name != "store"] or ["offset"]
        arguments: dict[str, Any] = {
            "dialect": "spark",
            "topic": topic,
            "columns": scanned,
            "queues": [found.queue for found in there],
            "start": {found.queue: found.start for found in there},
            "end": {found.queue: found.end for found in there},
            "batch_rows": BATCH_ROWS,
            "batch_bytes": BATCH_BYTES,
        }
        damage = []
        if there:
            scan = _forebay.scan_again(store, arguments)
            for batch in pyarrow.RecordBatchReader.from_stream(scan):
                missing -= batch.num_rows
                yield batch if "store" not in columns else with_store(batch, columns, store.path)
            damage = scan.damage
        if missing:
            self._report_loss(store, topic, wanted, missing, [*damage, *store.damage])

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
        reason = f"{missing} messages of {places}{more} in {store.path} are lost"
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


def _still_there(topic: Topic | None, ranges: list[Range]) -> Iterator[Range]:
    queues = {} if topic is None else {queue.id: queue for queue in topic.queues}
    for found in ranges:
        queue = queues.get(found.queue)
        if queue is not None:
            start = min(max(found.start, queue.min_offset), queue.max_offset)
            yield replace(found, start=start, end=max(start, found.end))


_opened = Opened()
