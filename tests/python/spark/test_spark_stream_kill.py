"""Drivers of two streams that are killed at random: each message is in both sinks exactly once.

One stream reads a store that is opened and closed beside it, the other copies a store into another.
A driver and all its processes are killed at a random moment after both have made progress, and the
next one continues from the checkpoints. `FOREBAY_SEED` repeats the same moments, as far as the
machine's timing allows.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections import Counter

import harness
from sparks import SESSION, drivers, run_program

import forebay

KILLS = 200 if harness.PROOF else 10
#: Messages sent before each driver runs: more than it can copy in its lifetime.
SENT = 10_000
MARKERS = "rmq_sys_forebay_commits"

PROGRAM = """
folder, rest = given

def read(source, limit, **options):
    # Spark finds the format by itself.
    reader = spark.readStream.format("forebay").options(**options)
    reader = reader.options(subscribe="orders", startingOffsets="earliest")
    if not rest:
        reader = reader.option("maxOffsetsPerTrigger", limit)
    return reader.load(f"{folder}/{source}")

def write(frame, form, sink):
    writer = frame.writeStream.format(form)
    writer = writer.option("checkpointLocation", f"{folder}/{sink}-checkpoint")
    writer = writer.trigger(**({"availableNow": True} if rest else {"processingTime": "0 seconds"}))
    return writer.start(f"{folder}/{sink}")

fed = read("fed", 300, columns="partition,offset,value", group="etl")
events = read("events", 500).selectExpr("value", "concat('t', partition % 2) as topic")
queries = [write(fed, "parquet", "rows"), write(events, "forebay", "copy")]
print("started", flush=True)
if not rest:
    # A query that ends ends the driver.
    spark.streams.awaitAnyTermination()
for query in queries:
    query.awaitTermination()
"""

#: Reads what the first stream wrote: Spark knows which files of it count.
ROWS = """
rows = spark.read.parquet(folder + "/rows").collect()
print(json.dumps([(row.partition, row.offset, row.value.decode()) for row in rows]))
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


def test_each_message_is_in_both_sinks_once_however_often_the_driver_dies(tmp_path):
    seed = harness.seed()
    print(f"FOREBAY_SEED={seed}")
    chance = random.Random(seed)
    feed = Feed(tmp_path / "fed", random.Random(seed + 1))
    with forebay.open(tmp_path / "fed", default_queues=3) as store:
        store.create_topic("orders", queues=3)
    feed.start()
    sent = 0
    try:
        with (
            forebay.open(tmp_path / "events", default_queues=3) as store,
            drivers(PROGRAM, [str(tmp_path), False], KILLS) as run,
        ):
            orders = store.producer("orders")
            for _ in range(KILLS):
                orders.send_batch([b"%d" % number for number in range(sent, sent + SENT)])
                store.flush()
                sent += SENT
                run_until(run, tmp_path, chance)
    finally:
        feed.stop()
    code = f"{SESSION}given = sys.argv[1], True\n{PROGRAM}{ROWS}"
    rows = json.loads(run_program(code, str(tmp_path)).splitlines()[-1])
    found = {(partition, offset): value.encode() for partition, offset, value in rows}
    assert len(rows) == len(found)
    assert found == feed.sent
    marked = marks(tmp_path / "copy")
    parts = {batch: count for batch, _, count in marked}
    assert list(parts) == list(range(len(parts)))
    assert marked == [(batch, n + 1, parts[batch]) for batch in parts for n in range(parts[batch])]
    with forebay.open(tmp_path / "copy", mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        copied = Counter()
        for topic in ("t0", "t1"):
            for queue in store.topics[topic].queues:
                read = store.read(topic, queue.id, 0, max_messages=10_000_000)
                copied.update(int(message.body) for message in read)
    assert copied == Counter(range(sent))
    shutil.rmtree(tmp_path)


def run_until(run, folder, chance):
    """Run a driver until both its queries have made progress, wait a moment, and kill it."""
    begun, steps = steps_in(folder / "rows-checkpoint"), chance.randrange(1, 6)
    path = folder / "copy"
    driver = run()
    try:
        driver.wait_for("started")
        while steps_in(folder / "rows-checkpoint") < begun + steps:
            driver.check()
            time.sleep(0.01)
        marked = len(marks(path))
        while not has_entry(path, marked) or len(marks(path)) <= marked:
            driver.check()
            time.sleep(0.002)
        # Half of the kills come before Spark records the copied batch as done, the others at any
        # point of a batch or of its commit. There is no event to wait for.
        time.sleep(chance.choice((0, chance.uniform(0, 0.7))))
        driver.check()
    finally:
        driver.kill()


def steps_in(checkpoint):
    """Return how many steps a query has completed: batches planned, and batches committed."""
    # Spark keeps only the last hundred of each.
    return sum(
        max((int(name) + 1 for name in os.listdir(checkpoint / kind) if name.isdigit()), default=0)
        for kind in ("offsets", "commits")
        if (checkpoint / kind).is_dir()
    )


def marks(path):
    """Return batch, part and number of parts of each marker in the log."""
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


def has_entry(path, number):
    """Return whether the queue of the markers has this entry, without opening the store."""
    try:
        with open(path / "consumequeue" / MARKERS / "0" / f"{0:020}", "rb") as file:
            return any(os.pread(file.fileno(), 20, number * 20))
    except FileNotFoundError:
        return False
