"""Benchmarks of the Python package: medians of several runs, each on a new store of the same kind.

The load is that of the Rust benches: bodies of 100 bytes, a distinct key of 8 characters per
message, one topic, one queue, asynchronous flush. The times include the calling loop.
"""

import contextlib
import gc
import os
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import interrupts
import pyarrow as pa

import forebay

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPIC = "bench"
BODY = b"Z" * 100
RECORD_LEN = 91 + len(BODY) + len(TOPIC) + len("KEYS") + 1 + 8 + 1 + 20
RUN_BYTES = int(os.environ.get("FOREBAY_BENCH_BYTES", 1 << 30))
ROUNDS = max(1, int(os.environ.get("FOREBAY_BENCH_ROUNDS", "5")))
COUNT = (RUN_BYTES - RUN_BYTES // 256) // RECORD_LEN
QUERIES = min(COUNT, 100_000)
BATCH_ROWS = 1000
ARROW_ROWS = 65_536
ON_CPU = "[on CPU]"

Figures = dict[tuple[str, str], list[float]]


class Clock:
    """Measures the wall time and the CPU time of this thread since construction."""

    def __init__(self) -> None:
        self._on_cpu = time.thread_time()
        self._began = time.perf_counter()

    def rates(self, figures: Figures, name: str, unit: str, count: int) -> None:
        wall = time.perf_counter() - self._began
        on_cpu = time.thread_time() - self._on_cpu
        figures.setdefault((name, unit), []).append(count / wall)
        figures.setdefault((f"{name} {ON_CPU}", unit), []).append(count / on_cpu)


@contextlib.contextmanager
def new_store() -> Iterator[forebay.Store]:
    """Open a store in a new directory, on the same disk as the sources."""
    path = ROOT / "target" / "bench-data" / f"python-{os.getpid()}"
    shutil.rmtree(path, ignore_errors=True)
    try:
        with forebay.open(path, default_queues=1) as store:
            # The first message creates the log file, the queue and the index file.
            store.producer(TOPIC, queue=0).send(b"")
            yield store
    finally:
        shutil.rmtree(path, ignore_errors=True)


def wait_dispatched(store: forebay.Store) -> None:
    while (stats := store.stats()).dispatched < stats.published:
        time.sleep(0.001)


def send_each(producer: forebay.Producer, keys: list[str]) -> None:
    send = producer.send
    for key in keys:
        send(BODY, key=key)


def send_batches(producer: forebay.Producer, keys: list[str]) -> None:
    bodies = [BODY] * BATCH_ROWS
    for start in range(0, len(keys), BATCH_ROWS):
        some = keys[start : start + BATCH_ROWS]
        producer.send_batch(bodies[: len(some)], keys=some)


def measure_sends(figures: Figures, keys: list[str], batches: list[pa.RecordBatch]) -> None:
    def send_arrow(producer: forebay.Producer, _keys: list[str]) -> None:
        for batch in batches:
            producer.send_arrow(batch)

    ways: list[tuple[str, Callable[[forebay.Producer, list[str]], None]]] = [
        ("producer.send", send_each),
        (f"send_batch({BATCH_ROWS:,})", send_batches),
        (f"send_arrow, {ARROW_ROWS:,} rows", send_arrow),
    ]
    for name, send in ways:
        with new_store() as store:
            producer = store.producer(TOPIC, queue=0)
            clock = Clock()
            send(producer, keys)
            clock.rates(figures, name, "messages/s", len(keys))


def measure_read(store: forebay.Store, figures: Figures) -> None:
    for name, looks in (("read(1,000)", False), ("read(1,000) and .body", True)):
        offset = 0
        clock = Clock()
        while offset < COUNT:
            batch = store.read(TOPIC, 0, offset, max_messages=1000)
            messages = batch.messages
            if looks:
                for message in messages:
                    message.body  # noqa: B018 - reading it is what is measured
            offset = batch.next_offset
        clock.rates(figures, name, "messages/s", COUNT)


def measure_consume(store: forebay.Store, figures: Figures) -> None:
    name = f"poll({BATCH_ROWS:,}) and ack of all"
    with store.consumer(TOPIC, group="bench") as consumer:
        left = COUNT
        clock = Clock()
        while left > 0:
            messages = consumer.poll(BATCH_ROWS)
            consumer.ack(messages)
            left -= len(messages)
        clock.rates(figures, name, "messages/s", COUNT)


def measure_query(store: forebay.Store, figures: Figures, keys: list[str]) -> None:
    times = []
    query, now = store.query, time.perf_counter_ns
    number = 1
    for _ in range(QUERIES):
        # The step is a prime above the number of keys, so the keys are visited in scattered order.
        number = (number + 1_000_000_007) % len(keys)
        key = keys[number]
        began = now()
        found = query(TOPIC, key)
        times.append(now() - began)
        assert len(found) == 1
    times.sort()
    figures.setdefault(("query by key: p50", "ns"), []).append(times[QUERIES // 2])
    figures.setdefault(("query by key: p99", "ns"), []).append(times[QUERIES * 99 // 100])


def measure_scan(store: forebay.Store, figures: Figures) -> None:
    for name, body_type in (("views", "binary_view"), ("gathered", "binary")):
        scan = store.scan(TOPIC, columns=["offset", "body"], body_type=body_type)
        rows = 0
        clock = Clock()
        for batch in pa.RecordBatchReader.from_stream(scan):
            rows += batch.num_rows
        clock.rates(figures, f"scan to pyarrow, {name}, checked", "rows/s", rows)


def one_round(figures: Figures, keys: list[str], batches: list[pa.RecordBatch]) -> None:
    measure_sends(figures, keys, batches)
    with new_store() as store:
        send_batches(store.producer(TOPIC, queue=0), keys)
        wait_dispatched(store)
        store.flush()
        measure_read(store, figures)
        measure_consume(store, figures)
        measure_query(store, figures, keys)
        measure_scan(store, figures)
        interrupts.measure(store, TOPIC, figures)


def short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:8.2f} M"
    return f"{value / 1e3:8.1f} k" if value >= 1e4 else f"{value:8.1f}  "


def report(figures: Figures) -> None:
    """Print the medians, and save them for the summary of `make bench`."""
    path = ROOT / "target" / "bench" / "python.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as kept:
        for (name, unit), values in figures.items():
            median = statistics.median(values)
            low, high = min(values), max(values)
            print(f"  {name:<52} {short(median)} {unit}  ({short(low)} to {short(high)})")
            kept.write(f"{name}\t{unit}\t{median}\t{low}\t{high}\t{len(values)}\n")


def main() -> None:
    load = os.getloadavg()[0]
    print(f"python: runs of {RUN_BYTES >> 20} MiB, {ROUNDS} rounds, load {load:.1f}")
    keys = [f"{number:08}" for number in range(COUNT)]
    table = pa.table({"body": pa.array([BODY] * COUNT), "key": pa.array(keys)})
    batches = table.to_batches(max_chunksize=ARROW_ROWS)
    # Otherwise each full run of the garbage collector visits all keys: twice the time of a poll.
    gc.freeze()
    # The first round warms up and is not counted.
    one_round({}, keys, batches)
    figures: Figures = {}
    for _ in range(ROUNDS):
        one_round(figures, keys, batches)
    report(figures)


if __name__ == "__main__":
    sys.exit(main())
