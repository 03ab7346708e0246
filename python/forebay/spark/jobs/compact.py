"""The job `compact`: copies the newest message of each key to a new store.

Spark finds the survivors by topic and key, joins them with their messages by position, sorts the
messages and writes them to files. The driver, the only process that may write the store, sends them
from there. The new store gets its name once it is complete.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import forebay
from forebay.durable import sync_directory
from forebay.errors import CorruptError, StoreExistsError
from forebay.options import Progress
from forebay.spark.jobs.work import (
    alone,
    chosen_topics,
    named_topics,
    read_ranges,
    reporting,
)
from forebay.spark.options import local
from forebay.spark.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from forebay import Store

#: Columns that are copied to the new store, and the position.
_COLUMNS = "position,topic,queue,keys,tags,properties,body,born_timestamp"
#: Rows that are read from a file at a time.
_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Compaction:
    """The result of a compaction.

    Attributes
    ----------
    path, target
        The store, and the new store.
    messages
        Messages in the source.
    kept
        Messages in the new store.
    without_key
        Messages in the new store without a key; all of these are kept.
    log_bytes, kept_bytes
        Bytes of the source's log, and of the new store's.
    seconds
        How long it took.
    """

    path: str
    target: str
    messages: int
    kept: int
    without_key: int
    log_bytes: int
    kept_bytes: int
    seconds: float

    def _asdict(self) -> dict[str, Any]:
        return asdict(self)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Compaction:
    """Write the newest message of each key of each topic to a new store.

    A message's key is its first key, as in the column `key`. All messages without a key are kept.
    Kafka refuses them when they are sent to a compacted topic; a later job that dropped them would
    lose messages that nothing replaces. A message with a null value is kept like any other and no
    key is removed, so a later reader of the copy learns of the deletion.

    The messages of a topic keep their order, queue, keys, tags, properties and born time. Offsets,
    positions and store times are new. Flags, delivery counts and unique keys of other producers are
    not copied.

    Parameters
    ----------
    spark
        The session. The format ``forebay`` is registered in it.
    path
        Directory of the store, live, closed, or written by RocketMQ. Messages sent up to now are
        compacted. Every worker must reach this path, and the directory that contains the target.
    target
        Directory of the new store, which must not exist. Work files go to
        ``<target>.compacting``.
    topics
        Topics to copy; by default all but RocketMQ's system topics.
    options
        Options of `forebay.open` for the new store, such as its file sizes. All others have their
        defaults, whatever options the source keeps.
    progress
        Called with the number of finished tasks and of all tasks; not in a remote session.

    Raises
    ------
    StoreExistsError
        If the target exists.
    CorruptError
        If the driver does not find all the rows that the workers wrote; no store is created then.
    BlockingIOError
        If another compaction to the target is running.

    Examples
    --------
    >>> forebay.spark.compact(spark, "events", "newest").kept  # doctest: +SKIP
    1000
    """
    began = time.monotonic()
    root, place = local("path", path), local("target", target)
    asked = named_topics(topics)
    with _work_folder(place) as work:
        with forebay.open(root, mode="r") as store:
            queues, ranges = _plan(store, asked)
            log_bytes = store.stats().log_bytes
        rows, kept = os.path.join(work, "rows"), 0
        if ranges:
            with reporting(spark, progress):
                kept = _leave(spark, root, ranges, rows)
        files = _left(rows, kept, place)
        fresh = os.path.join(work, "store")
        with forebay.open(fresh, mode="x", **(options or {})) as made:
            for name, count in queues.items():
                made.create_topic(name, queues=count)
            without_key = sum(_send(made, file) for file in files)
            made.flush()
            kept_bytes = made.stats().log_bytes
        os.rename(fresh, place)
        sync_directory(os.path.dirname(place))
    return Compaction(
        path=root,
        target=place,
        messages=sum(map(len, ranges)),
        kept=kept,
        without_key=without_key,
        log_bytes=log_bytes,
        kept_bytes=kept_bytes,
        seconds=time.monotonic() - began,
    )


@contextlib.contextmanager
def _work_folder(place: str) -> Iterator[str]:
    """Create the work folder, lock it for this compaction, and remove it at the end."""
    _check_free(place)
    work = f"{place}.compacting"
    with alone(work, place, "compaction"):
        try:
            # Check again: another compaction may have created the target before it released the
            # lock.
            _check_free(place)
            # Remove what an interrupted compaction has left.
            for name in ("rows", "store"):
                shutil.rmtree(os.path.join(work, name), ignore_errors=True)
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _check_free(place: str) -> None:
    if os.path.lexists(place):
        message = f"{place} already exists; compact creates a new store"
        raise StoreExistsError(message, path=place)


def _plan(store: Store, asked: list[str] | None) -> tuple[dict[str, int], list[Range]]:
    """Return the number of queues of each topic, and the ranges of its messages."""
    queues: dict[str, int] = {}
    ranges: list[Range] = []
    for name, topic in chosen_topics(store, asked).items():
        found = topic.queues
        # The table of topics may lag behind its writer, and list fewer queues than there are.
        queues[name] = max(topic.write_queues, *(queue.id + 1 for queue in found), 1)
        ranges += [
            Range(str(store.path), name, queue.id, queue.min_offset, queue.max_offset)
            for queue in found
        ]
    return queues, [found for found in ranges if len(found)]


def _leave(spark: SparkSession, root: str, ranges: list[Range], rows: str) -> int:
    """Write the survivors to files; return how many rows Spark counted while writing."""
    from pyspark.sql import Observation, functions

    seen = Observation()
    # Observe after the sort: before it, rows that Spark samples would be counted too.
    frame = _survivors(spark, root, ranges)
    frame = frame.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    frame.write.parquet(_url(rows))
    return int(seen.get["rows"])


def _survivors(spark: SparkSession, root: str, ranges: list[Range]) -> DataFrame:
    """Return `_COLUMNS` of the newest message of each key, in log order."""
    from pyspark.sql import functions

    def read(columns: str) -> DataFrame:
        return read_ranges(spark, root, ranges, columns, fail_on_data_loss=True)

    keys = read("topic,key,position")
    newest = keys.where("key is not null").groupBy("topic", "key")
    positions = newest.agg(functions.max("position").alias("position")).select("position")
    positions = positions.unionAll(keys.where("key is null").select("position"))
    return read(_COLUMNS).join(positions, "position", "left_semi").orderBy("position")


def _url(path: str) -> str:
    """Return a path as a URI, which Spark takes as local whatever its default file system is."""
    from pathlib import Path

    return Path(path).as_uri()


def _left(rows: str, written: int, place: str) -> list[str]:
    """Return the files that Spark wrote, in order, after checking that no row is missing.

    Rows are missing if a worker and the driver do not share the directory of the target.
    """
    import pyarrow.parquet  # type: ignore[import-untyped]

    files = sorted(glob.glob(os.path.join(glob.escape(rows), "part-*")))
    here = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    if here != written:
        reason = f"the workers wrote {written} messages, but the driver found {here}"
        reason += "; every worker must reach this directory under the same path as the driver"
        message = f"{rows}: {reason}; {place} was not created"
        raise CorruptError(message, path=rows, position=0, reason=reason)
    return files


def _send(store: Store, path: str) -> int:
    """Send the rows of a file; return how many have no key."""
    import pyarrow.parquet

    without_key = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            without_key += batch.column("keys").null_count
            _send_batch(store, pyarrow.Table.from_batches([batch]))
    return without_key


def _send_batch(store: Store, table: Any) -> None:
    import pyarrow.compute  # type: ignore[import-untyped]

    table = table.drop_columns(["position"]).rename_columns({"born_timestamp": "timestamp"})
    # Times in Spark's Parquet files are in UTC, but have no time zone.
    at = table.schema.get_field_index("timestamp")
    times = table.column(at).cast(pyarrow.timestamp("ms"), safe=False)
    table = table.set_column(at, "timestamp", times.cast(pyarrow.timestamp("ms", "UTC")))
    topics = table.column("topic")
    for topic in topics.unique().to_pylist():
        own = table.filter(pyarrow.compute.equal(topics, topic)).drop_columns(["topic"])
        store.producer(topic).send_arrow(own)
