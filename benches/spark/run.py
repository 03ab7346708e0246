"""Rows a second into and out of Spark: a store, a Kafka broker, and what Spark takes by itself.

    python benches/spark/run.py [read] [write] [stream]

Contenders take turns; the figures are medians of FOREBAY_BENCH_ROUNDS rounds (5) after one that is
not counted, over FOREBAY_BENCH_ROWS rows (2,000,000). `ready` yields one batch from memory over and
over, which is the limit of what a Python data source can do. `kafka` is Spark's connector against a
broker on loopback; without Maven it is left out. Run it with an extension built with --release.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import broker
import pyarrow
from pyspark.sql import DataFrame, SparkSession, functions
from ready import ready_source

import forebay
import forebay.spark

ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "5"))
ROWS = int(os.environ.get("FOREBAY_BENCH_ROWS", "2000000"))
SIZES = {"100 B": 100, "1 KiB": 1024}
TRIGGERS = 30

Run = Callable[[], object]


def touch_memory() -> None:
    """Touch the free memory: a virtual machine may get it from its host page by page, slowly."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bytearray(b"x") * (free // 8 * 7)


def contest(title: str, runs: dict[str, Run], rows: int) -> None:
    """Time each by turns and print medians, and each one's share of the first."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(ROUNDS + 1):
        for name, run in runs.items():
            # Else a sync of one waits for what another has left in the page cache.
            os.sync()
            start = time.perf_counter()
            run()
            if number > 0:
                seconds[name].append(time.perf_counter() - start)
    rates = {name: rows / statistics.median(times) / 1e6 for name, times in seconds.items()}
    first = next(iter(rates.values()))
    told = ", ".join(f"{name} {rate:.2f} ({rate / first:.2f})" for name, rate in rates.items())
    print(f"{title}: {told} M rows/s", flush=True)


def session(*, with_kafka: bool, configuration: Mapping[str, str] | None = None) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers unpickle the source that stands beside this file.
    os.environ["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parent)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "2g")
    for name, value in (configuration or {}).items():
        builder = builder.config(name, value)
    if with_kafka:
        builder = builder.config("spark.jars", broker.connector_jars())
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    forebay.spark.register(spark)
    return spark


def rows_of(spark: SparkSession, size: int, rows: int) -> DataFrame:
    """Rows of a key of eight bytes and a value of `size` bytes, made by Spark itself."""
    key = functions.lpad(functions.col("id").cast("string"), 8, "0").cast("binary")
    value = functions.rpad(functions.lit("x"), size, "y").cast("binary")
    return spark.range(0, rows, 1, 2).select(key.alias("key"), value.alias("value"))


def fill(path: str, size: int, rows: int) -> None:
    body = b"x" * size
    with forebay.open(path, default_queues=2) as store:
        producer = store.producer("orders")
        for first in range(0, rows, 1000):
            keys = [b"%08d" % (first + number) for number in range(1000)]
            producer.send_batch([body] * 1000, keys=keys)


def keep_batch(spark: SparkSession, path: str, to: str) -> None:
    """Keep a batch of the rows of a store in the types that Spark takes."""
    frame = spark.read.format("forebay").option("subscribe", "orders").load(path)
    table = frame.limit(16_384).toArrow().combine_chunks()
    from forebay.spark.columns import KAFKA_COLUMNS

    kinds = {"key": pyarrow.binary(), "value": pyarrow.binary(), "topic": pyarrow.string()}
    table = table.select(KAFKA_COLUMNS)
    for place, name in enumerate(table.column_names):
        if name in kinds:
            table = table.set_column(place, name, table[name].cast(kinds[name]))
    with pyarrow.ipc.new_file(to, table.schema) as file:
        file.write_table(table)


def loads(spark: SparkSession, path: str, address: str | None, topic: str) -> dict[str, DataFrame]:
    frames = {
        "ready": spark.read.format("ready").load(),
        "forebay": spark.read.format("forebay").option("subscribe", "orders").load(path),
    }
    if address is not None:
        kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
        frames["kafka"] = kafka.option("subscribe", topic).load()
    return frames


def outputs(folder: str) -> dict[str, Callable[[DataFrame], object]]:
    total = functions.sum(functions.length("value"))
    return {
        "count": lambda frame: frame.count(),
        "noop": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "sum(length)": lambda frame: frame.agg(total).collect(),
        "Parquet": lambda frame: frame.write.mode("overwrite").parquet(f"{folder}/parquet"),
    }


def read(spark: SparkSession, folder: str, address: str | None) -> None:
    for label, size in SIZES.items():
        rows = ROWS if size < 1024 else ROWS // 4
        path, topic = f"{folder}/read-{size}", f"read-{size}"
        fill(path, size, rows)
        keep_batch(spark, path, f"{folder}/ready-{size}")
        spark.dataSource.register(ready_source(f"{folder}/ready-{size}", rows))
        if address is not None:
            to_kafka(rows_of(spark, size, rows), address, topic)
        frames = loads(spark, path, address, topic)
        for name, output in outputs(folder).items():
            runs = {who: lambda f=frame, o=output: o(f) for who, frame in frames.items()}
            contest(f"read {label}, {name}", runs, rows)
        shutil.rmtree(path)


def to_kafka(frame: DataFrame, address: str, topic: str) -> None:
    sink = frame.write.format("kafka").option("kafka.bootstrap.servers", address)
    sink.option("topic", topic).save()


def to_forebay(frame: DataFrame, path: str) -> None:
    frame.write.format("forebay").option("topic", "orders").mode("append").save(path)


def write(spark: SparkSession, folder: str, address: str | None) -> None:
    for label, size in SIZES.items():
        rows = ROWS if size < 1024 else ROWS // 4
        frame, path = rows_of(spark, size, rows), f"{folder}/write-{size}"
        runs: dict[str, Run] = {"forebay": lambda f=frame, p=path: to_forebay(f, p)}
        if address is not None:
            topic = f"write-{size}"
            runs["kafka"] = lambda f=frame, t=topic: to_kafka(f, address, t)
        touch_memory()
        contest(f"write {label}", runs, rows)
        shutil.rmtree(path)


def stream(spark: SparkSession, folder: str, address: str | None) -> None:
    """Milliseconds of a trigger that reads one message, beside a source that only says so."""
    path = f"{folder}/stream"
    fill(path, 100, 1000)
    keep_batch(spark, path, f"{folder}/ready-stream")
    spark.dataSource.register(ready_source(f"{folder}/ready-stream", 1))
    ours = spark.readStream.format("forebay").option("subscribe", "orders")
    ours = ours.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1)
    frames = {"ready": spark.readStream.format("ready").load(), "forebay": ours.load(path)}
    if address is not None:
        to_kafka(rows_of(spark, 100, 1000), address, "stream")
        kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
        kafka = kafka.option("subscribe", "stream").option("startingOffsets", "earliest")
        frames["kafka"] = kafka.option("maxOffsetsPerTrigger", 1).load()
    medians = {who: trigger_ms(frame, f"{folder}/{who}") for who, frame in frames.items()}
    told = ", ".join(f"{who} {ms:.0f}" for who, ms in medians.items())
    print(f"stream, median of {TRIGGERS} triggers of one message: {told} ms", flush=True)


def trigger_ms(frame: DataFrame, checkpoint: str) -> float:
    sink = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = sink.start()
    found: dict[int, float] = {}
    while len(found) < TRIGGERS + 5 and query.exception() is None:
        for progress in query.recentProgress:
            if progress["numInputRows"] > 0:
                found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        time.sleep(0.05)
    query.stop()
    # The first ones start workers.
    return statistics.median(list(found.values())[5:])


@contextlib.contextmanager
def kafka(folder: str) -> Iterator[str | None]:
    if shutil.which("mvn") is None:
        print("mvn is not on the path: nothing is measured against Kafka")
        yield None
        return
    with broker.broker(folder) as address:
        yield address


def main() -> None:
    groups = {"read": read, "write": write, "stream": stream}
    wanted = sys.argv[1:] or list(groups)
    with tempfile.TemporaryDirectory(prefix="forebay-spark-") as folder:
        os.mkdir(f"{folder}/kafka")
        with kafka(f"{folder}/kafka") as address:
            spark = session(with_kafka=address is not None)
            for name in wanted:
                groups[name](spark, folder, address)
            spark.stop()


if __name__ == "__main__":
    main()
