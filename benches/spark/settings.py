"""What settings change: rows a second that Spark reads from a store and throws away.

    python benches/spark/settings.py [SETTING ...]

Each setting has a session of its own. Sessions take turns, FOREBAY_BENCH_ROUNDS (3) times; of each
the third to fifth run counts. Rows are FOREBAY_BENCH_ROWS (2,000,000), a quarter of that of 1 KiB.
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

#: Spark's configuration, options of the source, and bytes of its batches.
SETTINGS: dict[str, tuple[dict[str, str], dict[str, str], int | None]] = {
    "as it is": ({}, {}, None),
    "the value alone": ({}, {"columns": "value"}, None),
    "batches of 256 KiB": ({}, {}, 256 << 10),
    "batches of 16 MiB": ({}, {}, 16 << 20),
    "lz4": ({"spark.sql.execution.arrow.compression.codec": "lz4"}, {}, None),
    "Unix sockets": ({"spark.python.unix.domain.socket.enabled": "true"}, {}, None),
    "workers once": ({"spark.python.worker.reuse": "false"}, {}, None),
}


def sized(length: int | None) -> type[DataSource]:
    """Make the source with batches of another length."""

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
    """Return the seconds of three runs for each size."""
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
        # The first session warms Spark itself up.
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
