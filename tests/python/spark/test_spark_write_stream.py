"""A stream from store to store, killed repeatedly: each message arrives exactly once.

A child runs the stream. It and all its processes are killed at a random moment after its first
commit, and it restarts from its checkpoint. `FOREBAY_SEED` repeats the same moments, as far as the
machine's timing allows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from collections import Counter

import harness
from pyspark.errors import StreamingQueryException
from sparks import drivers

import forebay
from forebay.spark import ForebayDataSource

KILLS = 200 if harness.PROOF else 10
#: The limit of a batch, and more messages than a job can copy in its lifetime.
ROWS = 500
SENT = 20 * ROWS
MARKERS = "rmq_sys_forebay_commits"

PROGRAM = """
source, target, checkpoint, rows, rest = given
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
"""


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


def test_a_repeatedly_killed_stream_writes_each_message_once(spark, tmp_path):
    seed = harness.seed()
    print(f"FOREBAY_SEED={seed}")
    chance = random.Random(seed)
    path, sent = tmp_path / "copy", 0
    places = [str(tmp_path / name) for name in ("events", "copy", "checkpoint")]
    with (
        forebay.open(tmp_path / "events", default_queues=3) as store,
        drivers(PROGRAM, [*places, ROWS, False], KILLS) as run,
    ):
        orders = store.producer("orders")
        for _ in range(KILLS):
            orders.send_batch([b"%d" % number for number in range(sent, sent + SENT)])
            store.flush()
            sent += SENT
            before = len(marks(path))
            driver = run()
            driver.wait_for("started")
            while not has_entry(path, before) or len(marks(path)) <= before:
                assert driver.is_alive(), "it ends by itself"
                time.sleep(0.002)
            # Half of the kills come before Spark records the batch as done, the others at any
            # point of a batch or of its commit.
            time.sleep(chance.choice((0, chance.uniform(0, 0.7))))
            driver.kill()
    spark.dataSource.register(ForebayDataSource)
    exec(PROGRAM, {"spark": spark, "given": [*places, ROWS, True]})
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


def counts(path):
    """Return how often each number is in the log, which must be intact."""
    with forebay.open(path, mode="r") as store:
        verified = store.verify()
        assert verified.ok, verified.damage
        read = store.tail("t", "earliest", follow=False)
        return Counter(int(message.body) for message in read)


def test_of_two_queries_with_one_checkpoint_the_second_fails_or_appends_its_own_rows(
    spark, tmp_path
):
    """A copied checkpoint makes two queries one: each numbers its next batch as the other does."""
    spark.dataSource.register(ForebayDataSource)
    path = tmp_path / "store"
    forebay.open(path).close()

    folder, files = tmp_path / "rows", {"one": [], "other": []}

    def run(name, numbers=(), conflict="fail"):
        """Write a query's next numbers, until it has no more; return its error."""
        files[name] += [numbers] if numbers else []
        # The checkpoint names the folder, so both have the same one, each with its own files.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for some in files[name]:
            (folder / f"{some[0]}.txt").write_text("".join(f"{it}\n" for it in some))
        writer = spark.readStream.text(str(folder)).writeStream.format("forebay")
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer = writer.option("topic", "t").option("batchConflict", conflict)
        query = writer.trigger(availableNow=True).start(str(path))
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        return query.exception()

    assert run("one", range(10)) is None
    shutil.copytree(tmp_path / "one-checkpoint", tmp_path / "other-checkpoint")
    assert run("one", range(10, 20)) is None
    # Both write batch 1; the log holds the first one's.
    assert "batchConflict" in str(run("other", range(20, 30)))
    assert counts(path) == Counter(range(20))
    # Neither a further batch of the first query nor a restart of the second changes that.
    assert run("one", range(30, 40)) is None
    assert "batchConflict" in str(run("other"))
    assert counts(path) == Counter([*range(20), *range(30, 40)])
    assert run("other", conflict="append") is None
    assert counts(path) == Counter(range(40))
    # Spark forgets that the first query's last batch is done, and runs it again.
    for name in ("2", ".2.crc"):
        (tmp_path / "one-checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert run("one") is None
    assert counts(path) == Counter(range(40))
    assert run("one", range(40, 50)) is None
    assert counts(path) == Counter(range(50))
