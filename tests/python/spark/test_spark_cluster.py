"""Executors in separate processes, which share only the disk with the driver."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from sparks import run_program

import forebay

JOB = """
import json
import os
import sys
import time

from pyspark.sql import SparkSession

import forebay.spark

builder = SparkSession.builder.master(sys.argv[2])
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
# Both executors must be running before the first task.
builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
builder = builder.config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
builder = builder.config("spark.cores.max", "2")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
forebay.spark.register(spark)
frame = spark.read.format("forebay").option("subscribe", "orders,one").load("events")

executors = os.path.abspath(sys.argv[3] + "-executors")
os.mkdir(executors)

def measure(rows):
    lengths = [len(row.value) for row in rows]
    # The parent of a worker is its executor's daemon. No task ends before both executors run one:
    # otherwise the first to finish would run the second attempt at the other's task.
    open(f"{executors}/{os.getppid()}", "w").close()
    deadline = time.monotonic() + 120
    while len(os.listdir(executors)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return [(len(lengths), sum(lengths))]

tasks = frame.rdd.mapPartitions(measure).collect()
rows = frame.select("topic", "partition", "key", "value")
rows.write.format("forebay").mode("append").save(sys.argv[3])
print(json.dumps(tasks))
exec(sys.argv[4])
spark.stop()
"""

#: The jobs, over files that the executors can reach; their own tests check the results.
JOBS = """
found = forebay.spark.audit(spark, "events")
assert found.ok and found.records == 240, found
found = forebay.spark.rebuild(spark, "events", sys.argv[3] + "-built")
assert found.queue_entries == 240, found
found = forebay.spark.export(spark, "events", sys.argv[3] + "-lake")
assert (found.rows, found.lost) == (240, 0), found
"""

#: The first attempt at a task waits for a second one, and both continue at the same time.
SPECULATION = """
from pyspark import TaskContext

def slow(numbers):
    context = TaskContext.get()
    mine, other = (f"{folder}/{n}" for n in (context.attemptNumber(), 1 - context.attemptNumber()))
    deadline = time.monotonic() + 120
    for place, number in enumerate(numbers):
        if context.partitionId() == 3 and place == 250:
            open(mine, "w").close()
            while not os.path.exists(other) and time.monotonic() < deadline:
                time.sleep(0.02)
        yield (str(number),)

folder = os.path.abspath(sys.argv[3] + "-attempts")
os.mkdir(folder)
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
numbers = spark.sparkContext.parallelize(range(2000), 4).mapPartitions(slow)
frame = spark.createDataFrame(numbers, "value string")
frame.write.format("forebay").option("topic", "twice").mode("append").save(sys.argv[3])
assert sorted(os.listdir(folder)) == ["0", "1"]
"""

#: A second attempt at a task starts as soon as another task is done.
SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "50ms",
}


SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def daemon(environment: dict[str, str], *command: str) -> Iterator[Any]:
    """Run a daemon of a standalone cluster, and yield the lines that it prints."""
    arguments = [str(SPARK_CLASS), *command]
    running = subprocess.Popen(
        arguments,
        env=environment | {"SPARK_DAEMON_MEMORY": "256m"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stderr is not None
        yield running.stderr
    finally:
        running.terminate()
        running.communicate(timeout=60)


def heard(lines: Any, pattern: str) -> re.Match[str]:
    """Wait until a daemon prints a line; fail if it dies."""
    said = []
    for line in lines:
        said.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError("".join(said))


@contextlib.contextmanager
def standalone(environment: dict[str, str]) -> Iterator[str]:
    """Run a master and two workers with one core each, and yield its address.

    To Spark each worker is a host; it never runs two attempts at a task on one host.
    """
    ports = ["--port", "0", "--webui-port", "0"]
    environment = {name: environment[name] for name in environment if name != "SPARK_LOCAL_IP"}
    with contextlib.ExitStack() as daemons:
        command = [f"{DEPLOY}.master.Master", "--host", "127.0.0.1", *ports]
        master = daemons.enter_context(daemon(environment, *command))
        address = heard(master, r"Starting Spark master at (spark://\S+)").group(1)
        for host in ("127.0.0.1", "127.0.0.2"):
            options = ["--host", host, *ports, "--cores", "1", "--memory", "1g", address]
            worker = daemon(environment, f"{DEPLOY}.worker.Worker", *options)
            heard(daemons.enter_context(worker), "Successfully registered with master")
        yield address


def test_a_cluster_reads_and_writes_paths_that_are_relative_to_the_driver(events, tmp_path):
    """Two executors with one core each: each gets half of the bytes."""
    configuration = json.dumps(SPECULATIVE)
    environment = os.environ | {"SPARK_WORKER_DIR": str(tmp_path / "workers")}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path)
    written = Path(events.path).with_name("cluster")
    with standalone(environment) as master:
        arguments = (configuration, master, written.name, JOBS + SPECULATION)
        printed = run_program(JOB, *arguments, cwd=written.parent, env=environment)
    tasks = json.loads(printed)
    sent = events.of("orders", "one")
    assert sum(rows for rows, _ in tasks) == 160
    assert all(70 <= rows <= 90 for rows, _ in tasks)
    assert sum(length for _, length in tasks) == sum(len(message.body) for message in sent)
    assert len(list(written.with_name(f"{written.name}-executors").iterdir())) == 2
    with forebay.open(written, mode="r") as store:
        for topic in ("orders", "one"):
            expected = sorted((m.queue, m.body) for m in sent if m.topic == topic)
            found = []
            for queue in store.topics[topic].queues:
                read = store.read(topic, queue.id, queue.min_offset, max_messages=1000)
                found += [(queue.id, message.body) for message in read]
            assert sorted(found) == expected
        bodies = [m.body for m in store.tail("twice", "earliest", False)]
        assert sorted(map(int, bodies)) == list(range(2000))
        assert store.verify().ok
    built = written.with_name(f"{written.name}-built")
    names = sorted(path.relative_to(built) for path in built.rglob("consumequeue/*/*/*"))
    assert len(names) > 4
    for name in names:
        assert (built / name).read_bytes() == (Path(events.path) / name).read_bytes()
