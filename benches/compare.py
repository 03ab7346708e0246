"""Measure the real RocketMQ's store and Kafka's own log beside Forebay, in turn, on the same disk.

This needs Maven and a JDK, as tests/compat does. The figures are medians of FOREBAY_BENCH_ROUNDS
runs (default 5), each of FOREBAY_BENCH_BYTES of records (default 1 GiB): one thread, asynchronous
flush, a key of 8 bytes per message. Each run of RocketMQ is a separate process that warms up first;
Kafka's class runs in one process, whose first run of each kind is not counted.

    python benches/compare.py [rocketmq] [kafka]
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import maven  # noqa: E402
import rocketmq  # noqa: E402
from kafka import Kafka  # noqa: E402

ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "5"))
BYTES = int(os.environ.get("FOREBAY_BENCH_BYTES", str(1 << 30)))
OVERHEAD = 130
BODY = 100
BATCH = 100


def rocketmq_rate(directory: str, body: int) -> float:
    """Return the messages per second of RocketMQ's own store."""
    return rocketmq.speed(directory, count=BYTES // (body + OVERHEAD), body=body)


def forebay_rates(bench: str, group: str) -> dict[str, float]:
    """Return the figures of one run of the core's own bench."""
    saved = ROOT / "target" / "bench" / f"{bench}.tsv"
    saved.unlink(missing_ok=True)
    environment = {**os.environ, "FOREBAY_BENCH_ROUNDS": "1", "FOREBAY_BENCH_BYTES": str(BYTES)}
    command = ["cargo", "bench", "--locked", "--quiet", "--bench", bench, "--", group]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rows = [line.split("\t") for line in saved.read_text().splitlines()]
    return {row[0]: float(row[2]) for row in rows}


def kafka_rates(kafka: Kafka, batch: int) -> dict[str, float]:
    """Return the messages per second of Kafka's own log."""
    with tempfile.TemporaryDirectory(dir=ROOT / "target", prefix="compare-") as scratch:
        messages = BYTES // (BODY + OVERHEAD)
        return kafka.rates(pathlib.Path(scratch), messages=messages, batch=batch, body=BODY)


def show(name: str, other: str, theirs: list[float], ours: list[float]) -> None:
    """Print the medians."""
    one, two = statistics.median(theirs), statistics.median(ours)
    print(f"{name}: {other} {one / 1e6:.2f} M/s, Forebay {two / 1e6:.2f} M/s, {two / one:.1f} x")


def beside_rocketmq() -> None:
    """Compare single sends with RocketMQ's store."""
    for name, body, group in (("100 B", 100, "single"), ("1 KiB", 1024, "kib")):
        theirs, ours = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(dir=ROOT / "target", prefix="compare-") as scratch:
                theirs.append(rocketmq_rate(f"{scratch}/store", body))
            ours.append(forebay_rates("append", group)[f"{name}: send"])
        show(name, "RocketMQ", theirs, ours)


def beside_kafka() -> None:
    """Compare appends and reads with Kafka's log."""
    theirs: dict[str, list[float]] = {}
    ours: dict[str, list[float]] = {}
    with Kafka(optimised=True) as kafka:
        for number in range(ROUNDS + 1):
            single, batches = kafka_rates(kafka, 1), kafka_rates(kafka, BATCH)
            append = forebay_rates("append", "partition")
            read = forebay_rates("read", "partition")
            if number == 0:
                continue
            for name, rate, figure in (
                ("single sends", single["append"], append["partition log, 100 B"]),
                (
                    f"batches of {BATCH}",
                    batches["append"],
                    append[f"partition log, batches of {BATCH}, 100 B"],
                ),
                ("read", batches["read"], read["partition log, 100 B: views, checked"]),
            ):
                theirs.setdefault(name, []).append(rate)
                ours.setdefault(name, []).append(figure)
    for name, rates in theirs.items():
        show(f"{name}, {BODY} B", "Kafka", rates, ours[name])


def main() -> None:
    missing = maven.unavailable()
    if missing is not None:
        sys.exit(missing)
    wanted = sys.argv[1:] or ["rocketmq", "kafka"]
    if "rocketmq" in wanted:
        beside_rocketmq()
    if "kafka" in wanted:
        beside_kafka()


if __name__ == "__main__":
    main()
