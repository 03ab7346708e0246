"""Streams whose driver is killed at random: each message is in the sink exactly once."""

import os
import random
import threading
import time

import harness
from sparks import drivers

import forebay
from forebay.spark import ForebayDataSource

ROUNDS = 200 if harness.PROOF else 10

PROGRAM = """
# Spark finds the format by itself.
reader = spark.readStream.format("forebay").option("subscribe", "orders")
reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300)
reader = reader.option("columns", "partition,offset,value").option("group", "etl")
writer = reader.load(given + "/events").writeStream.format("parquet")
writer = writer.option("checkpointLocation", given + "/checkpoint")
query = writer.start(given + "/sink")
query.awaitTermination()
"""


class Feed(threading.Thread):
    """Sends endlessly, and sometimes closes the store and opens it again."""

    def __init__(self, path, chance):
        super().__init__()
        self._path = path
        self._chance = chance
        self._stopped = threading.Event()
        self.sent = {}
        self.error = None

    def run(self):
        try:
            while not self._stopped.is_set():
                with forebay.open(self._path, default_queues=3) as store:
                    orders = store.producer("orders")
                    for _ in range(self._chance.randrange(1, 60)):
                        for _ in range(20):
                            body = b"%d" % len(self.sent)
                            result = orders.send(body)
                            self.sent[result.queue, result.offset] = body
                        if self._stopped.wait(0.05):
                            break
        except BaseException as error:
            self.error = error

    def stop(self):
        self._stopped.set()
        self.join()
        if self.error is not None:
            raise self.error


def test_each_message_is_in_the_sink_once_however_often_the_driver_dies(spark, tmp_path):
    seed = harness.seed()
    print(f"FOREBAY_SEED={seed}")
    chance = random.Random(seed)
    feed = Feed(tmp_path / "events", random.Random(seed + 1))
    with forebay.open(tmp_path / "events", default_queues=3) as store:
        store.create_topic("orders", queues=3)
    feed.start()
    try:
        with drivers(PROGRAM, str(tmp_path), ROUNDS) as run:
            for _ in range(ROUNDS):
                # Between the first step of a batch and the third batch after it.
                run_until(run, tmp_path, steps=chance.randrange(1, 6), seconds=chance.random() / 3)
    finally:
        feed.stop()
    spark.dataSource.register(ForebayDataSource)
    reader = spark.readStream.format("forebay").option("subscribe", "orders")
    reader = reader.option("startingOffsets", "earliest").option("group", "etl")
    reader = reader.option("columns", "partition,offset,value")
    writer = reader.load(str(tmp_path / "events")).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "sink"))
    assert query.awaitTermination(300)
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    found = {(row.partition, row.offset): bytes(row.value) for row in rows}
    assert len(rows) == len(found)
    assert found == feed.sent


def steps_in(folder):
    """Return how many steps the query has completed: batches planned, and batches committed."""
    checkpoint = folder / "checkpoint"
    # Spark keeps only the last hundred of each.
    return sum(
        max((int(name) + 1 for name in os.listdir(checkpoint / kind) if name.isdigit()), default=0)
        for kind in ("offsets", "commits")
        if (checkpoint / kind).is_dir()
    )


def run_until(run, folder, steps, seconds):
    """Run a driver until its query has completed some steps, wait a moment, and kill it."""
    begun = steps_in(folder)
    driver = run()
    try:
        while steps_in(folder) < begun + steps:
            assert driver.is_alive(), "the query ended by itself"
            time.sleep(0.01)
        # There is no event to wait for: it may die at any moment.
        time.sleep(seconds)
        assert driver.is_alive(), "the query ended by itself"
    finally:
        driver.kill()
