"""A stream from store to store, killed again and again: each message is there once.

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
#: What a batch takes at most, and what a job finds more than it lives to copy.
ROWS = 500
SENT = 20 * ROWS
MARKERS = "rmq_sys_forebay_commits"

JOB = """
import json, sys
from pyspark.sql import SparkSession
source, target, checkpoint, rows, rest, configuration = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]")
for name, value in configuration.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
# Spark finds the format by itself.
reader = spark.readStream.format("forebay").option("subscribe", "orders")
reader = reader.option("startingOffsets", "earliest")
if not rest:
    reader = reader.option("maxOffsetsPerTrigger", rows)
frame = reader.load(source).selectExpr("value", "concat('t', partition % 2) as topic")
writer = frame.writeStream.format("forebay").option("checkpointLocation", checkpoint)
writer = writer.trigger(**({"availableNow": True} if rest else {"processingTime": "0 seconds"}))
query = writer.start(target)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


class Job:
    """The stream as a process with a group of its own."""

    def __init__(self, folder, rest=False):
        places = [str(folder / name) for name in ("events", "copy", "checkpoint")]
        task = [*places, ROWS, rest, CONFIGURATION]
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
        self.wait_for("ended")
        self._process.communicate(timeout=HANGS_S)


def marks(path):
    """Return the batch, part and number of parts of all that the log holds."""
    try:
        with forebay.open(path, mode="r") as store:
            if MARKERS not in store.topics:
                return []
            queue = store.topics[MARKERS].queues[0]
            found = store.read(MARKERS, 0, queue.min_offset, max_messages=100_000)
            marks = [json.loads(message.body) for message in found]
            return [(mark["batch"], mark["part"], mark["parts"]) for mark in marks]
    except (FileNotFoundError, NotADirectoryError):
        return []


def test_a_stream_that_is_killed_again_and_again_is_there_once(tmp_path):
    seed = int(os.environ.get("FOREBAY_SPARK_SEED", time.time_ns() % 10**6))
    print(f"FOREBAY_SPARK_SEED={seed}")
    chance = random.Random(seed)
    path, sent = tmp_path / "copy", 0
    with forebay.open(tmp_path / "events", default_queues=3) as store:
        orders = store.producer("orders")
        for _ in range(KILLS):
            orders.send_batch([b"%d" % number for number in range(sent, sent + SENT)])
            store.flush()
            sent += SENT
            before = len(marks(path))
            job = Job(tmp_path)
            deadline = time.monotonic() + HANGS_S
            while len(marks(path)) <= before:
                assert time.monotonic() < deadline, "it commits nothing"
                time.sleep(0.002)
            # Half of the kills come before Spark notes what the log holds by now, the others at any
            # point of a batch or of its commit.
            time.sleep(chance.choice((0, chance.uniform(0, 0.7))))
            job.kill()
        Job(tmp_path, rest=True).end()
    marked = marks(path)
    parts = {batch: count for batch, _, count in marked}
    assert list(parts) == list(range(len(parts)))
    assert marked == [(batch, n + 1, parts[batch]) for batch in parts for n in range(parts[batch])]
    with forebay.open(path, mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        copied = Counter()
        for topic in ("t0", "t1"):
            for queue in store.topics[topic].queues:
                read = store.read(topic, queue.id, 0, max_messages=10_000_000)
                copied.update(int(message.body) for message in read)
    assert copied == Counter(range(sent))
    shutil.rmtree(tmp_path)
