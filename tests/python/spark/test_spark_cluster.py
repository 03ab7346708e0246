"""Executors in processes of their own, which share nothing with the driver but the disk."""

import json
import os
import subprocess
import sys

from conftest import CONFIGURATION

JOB = """
import json
import os
import sys

from pyspark.sql import SparkSession

import forebay.spark

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
forebay.spark.register(spark)
frame = spark.read.format("forebay").option("subscribe", "orders,one").load("events")

def measure(rows):
    # The parent of a worker is the daemon of its executor.
    lengths = [len(row.value) for row in rows]
    return [(os.getppid(), len(lengths), sum(lengths))]

print(json.dumps(frame.rdd.mapPartitions(measure).collect()))
spark.stop()
"""


def test_a_cluster_reads_a_path_that_is_relative_to_the_driver(events, tmp_path):
    """Two executors with a core each: each gets half of the bytes."""
    workers = tmp_path / "workers"
    environment = os.environ | {"SPARK_WORKER_DIR": str(workers)}
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", JOB, json.dumps(CONFIGURATION)],
        cwd=os.path.dirname(events.path),
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    tasks = json.loads(done.stdout)
    sent = events.of("orders", "one")
    assert sum(rows for _, rows, _ in tasks) == 160
    assert all(70 <= rows <= 90 for _, rows, _ in tasks)
    assert sum(length for *_, length in tasks) == sum(len(message.body) for message in sent)
    assert len({pid for pid, *_ in tasks}) == 2
