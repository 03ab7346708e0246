"""Capture events in a service; stream them to Parquet and to another store, each exactly once.

The service keeps writing while Spark reads. A restarted stream continues from its checkpoint: it
reads what was sent meanwhile, and reads no message twice.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import forebay


def session(folder: str) -> Any:
    from pyspark.sql import SparkSession

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
    forebay.spark.register(spark)
    return spark


def run_streams(spark: Any, folder: Path) -> None:
    """Read what is available and stop; a service would omit the trigger and let the streams run."""
    clicks = (
        spark.readStream.format("forebay")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load(str(folder / "events"))
    )
    to_parquet = (
        clicks.selectExpr("cast(key as string) user", "cast(value as string) page", "timestamp")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "parquet-checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "clicks.parquet"))
    )
    to_store = (
        clicks.where("value = 'buy'")
        .select("key", "value")
        .writeStream.format("forebay")
        .option("topic", "purchases")
        .option("checkpointLocation", str(folder / "store-checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "purchases"))
    )
    for query in (to_parquet, to_store):
        query.awaitTermination()


def send(service: forebay.Store, first: int, count: int) -> None:
    clicks = service.producer("clicks")
    for number in range(first, first + count):
        page = b"buy" if number % 10 == 0 else b"look"
        clicks.send(page, key=f"user-{number % 7}")
    # A stream reads only durable messages.
    service.flush()


def main() -> None:
    if importlib.util.find_spec("pyspark") is None:
        print("skipped: PySpark is not installed (pip install 'forebay[spark]')")
        return
    # Workers must run the Python that has Forebay, and no data leaves this machine.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(name)
        try:
            with forebay.open(folder / "events") as service:
                for first in (0, 1000):
                    send(service, first, 1000)
                    run_streams(spark, folder)
                    rows = spark.read.parquet(str(folder / "clicks.parquet")).count()
                    with forebay.open(folder / "purchases", mode="r") as store:
                        bought = sum(1 for _ in store.tail("purchases", "earliest", follow=False))
                    print(f"{first + 1000} clicks sent: {rows} in Parquet, {bought} purchases")
                    assert (rows, bought) == (first + 1000, (first + 1000) // 10)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
