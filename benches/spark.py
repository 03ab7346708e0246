"""Rows a second into Spark: a store beside a Python data source that yields ready-made batches.

The second one is the limit of what Python data sources can do: what it takes is Spark's own. Run it
with an extension built with --release, and with a number of rows where a million is not right.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow
from pyspark.sql import SparkSession, functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import forebay
import forebay.spark
from forebay.spark import source
from forebay.spark.columns import KAFKA_COLUMNS, schema_of

BODY = bytes(range(100))
RUNS = 5


class ReadyReader(DataSourceReader):
    """Yields one batch over and over."""

    def __init__(self, path: str, rows: int) -> None:
        self._path = path
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Two tasks of like size."""
        return [InputPartition(self._rows // 2), InputPartition(self._rows - self._rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Slice the batch only at the end."""
        with pyarrow.ipc.open_file(self._path) as file:
            batch = file.get_batch(0)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def ready_source(path: str, rows: int) -> type[DataSource]:
    """Make a data source of the columns of the Kafka connector."""

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self):
            return schema_of(KAFKA_COLUMNS)

        def reader(self, schema):
            return ReadyReader(path, rows)

    return Ready


def measure(frame) -> tuple[float, float]:
    """Return the seconds of a full read that keeps nothing, and of a sum."""
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    middle = time.perf_counter()
    frame.agg(functions.sum(functions.length("value"))).collect()
    return middle - start, time.perf_counter() - middle


def main() -> None:
    """Measure both by turns and print medians."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/events"
        with forebay.open(path, default_queues=1) as store:
            producer = store.producer("orders")
            for first in range(0, rows, 1000):
                producer.send_batch(
                    [BODY] * 1000, keys=[b"%08d" % (first + n) for n in range(1000)]
                )
        reader = source.ForebayReader(
            source.parse_options({"path": path, "subscribe": "orders"}), parallelism=1
        )
        batch = next(reader.read(reader.partitions()[0]))
        with pyarrow.ipc.new_file(f"{folder}/ready", batch.schema) as file:
            file.write_batch(batch)
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = spark.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        forebay.spark.register(spark)
        spark.dataSource.register(ready_source(f"{folder}/ready", rows))
        found: dict[str, list[tuple[float, float]]] = {"forebay": [], "ready": []}
        for run in range(RUNS + 1):
            for name, times in found.items():
                load = spark.read.format(name)
                if name == "forebay":
                    load = load.option("subscribe", "orders")
                seconds = measure(load.load(path))
                if run > 0:
                    times.append(seconds)
        spark.stop()
    medians = {
        name: [statistics.median(kind) for kind in zip(*times, strict=True)]
        for name, times in found.items()
    }
    for name, (noop, total) in medians.items():
        print(f"{name:8} noop {rows / noop / 1e6:6.2f} M rows/s, sum {rows / total / 1e6:6.2f}")
    ratios = [b / a for a, b in zip(medians["forebay"], medians["ready"], strict=True)]
    print(f"forebay / ready: noop {ratios[0]:.2f}, sum {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
