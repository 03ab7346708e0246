"""The effect of settings on the rows per second that Spark reads from a store and discards.

    python benches/spark/settings.py [SETTING ...]

Each setting has its own sessions, which take turns for FOREBAY_BENCH_ROUNDS rounds (default 3). The
third to fifth run of each session count. There are FOREBAY_BENCH_ROWS rows (default 2,000,000) of
100 bytes, and a quarter as many of 1 KiB.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

from pyspark.sql.datasource import DataSource
from run import ROWS, SIZES, fill, session

from forebay.spark.reader import ForebayReader
from forebay.spark.source import ForebayDataSource

ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "3"))

#: By name: Spark's configuration, options of the source, and the size of a batch in bytes.
SETTINGS: dict[str, tuple[dict[str, str], dict[str, str], int | None]] = {
    "defaults": ({}, {}, None),
    "columns=value": ({}, {"columns": "value"}, None),
    "batches of 256 KiB": ({}, {}, 256 << 10),
    "batches of 16 MiB": ({}, {}, 16 << 20),
    "lz4": ({"spark.sql.execution.arrow.compression.codec": "lz4"}, {}, None),
    "Unix sockets": ({"spark.python.unix.domain.socket.enabled": "true"}, {}, None),
    "no worker reuse": ({"spark.python.worker.reuse": "false"}, {}, None),
}


def sized(length: int | None) -> type[DataSource]:
    """Return the source with another batch size."""

    class SizedReader(ForebayReader):
        def _arguments(self) -> dict[str, Any]:
            other = {} if length is None else {"batch_bytes": length, "batch_rows": 1 << 20}
            return super()._arguments() | other

    class Sized(ForebayDataSource):
        def reader(self, schema):
            reader = super().reader(schema)
            reader.__class__ = SizedReader
            return reader

    return Sized


def measure(name: str, paths: dict[str, str]) -> dict[str, list[float]]:
    """Return the times of three runs for each size, in seconds."""
    configuration, options, length = SETTINGS[name]
    spark = session(with_kafka=False, configuration=configuration)
    spark.dataSource.register(sized(length))
    seconds: dict[str, list[float]] = {}
    for label, path in paths.items():
        reader = spark.read.format("forebay").option("subscribe", "orders").options(**options)
        frame = reader.load(path)
        for number in range(5):
            start = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if number > 1:
                seconds.setdefault(label, []).append(time.perf_counter() - start)
    spark.stop()
    return seconds


def main() -> None:
    wanted = sys.argv[1:] or list(SETTINGS)
    with tempfile.TemporaryDirectory(prefix="forebay-spark-") as folder:
        rows = {label: ROWS if size < 1024 else ROWS // 4 for label, size in SIZES.items()}
        paths = {label: f"{folder}/{size}" for label, size in SIZES.items()}
        for label, size in SIZES.items():
            fill(paths[label], size, rows[label])
        # The first session only warms up.
        measure(wanted[0], paths)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for name in wanted:
                for label, seconds in measure(name, paths).items():
                    found.setdefault((name, label), []).extend(seconds)
    for label, count in rows.items():
        first = statistics.median(found[wanted[0], label])
        for name in wanted:
            median = statistics.median(found[name, label])
            print(f"{label}, {name}: {count / median / 1e6:.2f} M rows/s ({first / median:.2f})")


if __name__ == "__main__":
    main()
