"""A stream into a store, killed again and again: each row is there once.

A child runs the stream; it and all that it has started are killed at a random moment after it has
committed something, and it is started again from its checkpoint. `FOREBAY_SPARK_SEED` tells the
same moments again, as far as the machine does.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

from conftest import CONFIGURATION

import forebay

KILLS = int(os.environ.get("FOREBAY_SPARK_KILLS", 200 if os.environ.get("FOREBAY_PROOF") else 10))
#: Longer than anything here takes by far: what is not done by then hangs.
HANGS_S = 180
ROWS = 500
MARKERS = "rmq_sys_forebay_commits"

JOB = """
import json, sys
from pyspark.sql import SparkSession
path, checkpoint, rows, batches, configuration = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]")
for name, value in configuration.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
# Spark finds the format by itself.
rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
frame = rate.option("numPartitions", 3).load()
frame = frame.selectExpr("cast(value as string) as value", "concat('t', value % 2) as topic")
writer = frame.writeStream.format("forebay").option("checkpointLocation", checkpoint)
query = writer.trigger(processingTime="0 seconds").start(path)
print("started", flush=True)
while batches is None or (query.lastProgress or {"batchId": -1})["batchId"] < batches:
    if query.awaitTermination(0.2):
        break
query.stop()
print("stopped", flush=True)
"""


class Job:
    """The stream as a process with a group of its own."""

    def __init__(self, folder, batches=None):
        task = [str(folder / "events"), str(folder / "checkpoint"), ROWS, batches, CONFIGURATION]
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB, json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.wait_for("started")

    def wait_for(self, word):
        assert self._process.stdout.readline() == word + "\n"

    def kill(self):
        # Spark's workers are of its group, but for those whose daemon has made one for them.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def end(self):
        self.wait_for("stopped")
        self._process.communicate(timeout=HANGS_S)


def marks(path):
    """Return the batches that the log holds."""
    try:
        with forebay.open(path, mode="r") as store:
            if MARKERS not in store.topics:
                return []
            queue = store.topics[MARKERS].queues[0]
            found = store.read(MARKERS, 0, queue.min_offset, max_messages=100_000)
            return [json.loads(message.body)["batch"] for message in found]
    except (FileNotFoundError, NotADirectoryError):
        return []


def test_a_stream_that_is_killed_again_and_again_is_there_once(tmp_path):
    seed = int(os.environ.get("FOREBAY_SPARK_SEED", time.time_ns() % 10**6))
    print(f"FOREBAY_SPARK_SEED={seed}")
    chance = random.Random(seed)
    path = tmp_path / "events"
    for _ in range(KILLS):
        before = len(marks(path))
        job = Job(tmp_path)
        deadline = time.monotonic() + HANGS_S
        # Once it commits, the kill may come at any point of a batch or of its commit.
        while len(marks(path)) <= before:
            assert time.monotonic() < deadline, "it commits nothing"
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.7))
        job.kill()
    job = Job(tmp_path, batches=len(marks(path)) + 2)
    job.end()
    batches = marks(path)
    assert sorted(batches) == list(range(len(batches))), batches
    with forebay.open(path, mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        found = Counter()
        for topic in ("t0", "t1"):
            for queue in store.topics[topic].queues:
                read = store.read(topic, queue.id, 0, max_messages=1_000_000)
                found.update(int(message.body) for message in read)
    assert found == Counter(range(len(batches) * ROWS))
    shutil.rmtree(tmp_path)
