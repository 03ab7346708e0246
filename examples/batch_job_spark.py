"""A nightly Spark job over a store, without a broker or a connector: the directory is the source.

Options and columns are those of Spark's Kafka connector, so a job moves to Forebay by changing the
format and the address. Tasks are ranges of offsets: every core reads its own part.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import forebay


def fill(path: Path) -> None:
    """Send one day's payments."""
    with forebay.open(path) as store:
        payments = store.producer("payments")
        regions = ("eu", "us", "ap")
        for number in range(30_000):
            payments.send(str(number % 100).encode(), key=regions[number % 3])


def run(path: Path, folder: str) -> list[tuple[str, int, int]]:
    """Sum the payments by region."""
    from pyspark.sql import SparkSession, functions

    import forebay.spark

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", folder)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        forebay.spark.register(spark)
        payments = spark.read.format("forebay").option("subscribe", "payments").load(str(path))
        amount = payments.value.cast("string").cast("long")
        by_region = (
            payments.groupBy(payments.key.cast("string").alias("region"))
            .agg(functions.count("*").alias("payments"), functions.sum(amount).alias("total"))
            .orderBy("region")
        )
        return [tuple(row) for row in by_region.collect()]
    finally:
        spark.stop()


def main() -> None:
    if importlib.util.find_spec("pyspark") is None:
        print("skipped: PySpark is not installed (pip install 'forebay[spark]')")
        return
    # Workers must run the Python that has Forebay, and no data leaves this machine.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events")
        fill(path)
        rows = run(path, folder)
        for region, payments, total in rows:
            print(f"{region}: {payments} payments, {total} in total")
        assert [row[1] for row in rows] == [10_000] * 3, rows


if __name__ == "__main__":
    main()
