"""One topic or many: both engines, and the classes of RocketMQ and of Kafka beside them.

``forebay bench topics`` measures the engines alone; this adds RocketMQ's DefaultMessageStore and
Kafka's UnifiedLog, each in a JVM of its own, with a reading thread. All get the same messages, in
the same order of topics, and flush in the background. It needs Maven. Arguments: the file for the
chart, and the numbers of topics.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import maven  # noqa: E402
import rocketmq  # noqa: E402
from kafka import Kafka  # noqa: E402

from forebay.bench import ENGINES, TOPICS, Measured, measure, svg  # noqa: E402

ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "3"))
MESSAGES = int(os.environ.get("FOREBAY_BENCH_MESSAGES", "500000"))
BODY = 100

#: Measures one number of topics in a folder.
Way: TypeAlias = "Callable[[int, pathlib.Path], Measured]"


def of_forebay(engine: Literal["commitlog", "partitionlog"]) -> Way:
    """Return what measures an engine."""
    return lambda topics, folder: measure(engine, topics, folder, messages=MESSAGES, body=BODY)


def of_rocketmq(topics: int, folder: pathlib.Path) -> Measured:
    """Measure RocketMQ's own store."""
    found = rocketmq.speed_of_topics(folder / "store", topics=topics, count=MESSAGES, body=BODY)
    return Measured("RocketMQ", topics, found["rate"], found["p99"], int(found["read"]))


def of_kafka(topics: int, folder: pathlib.Path) -> Measured:
    """Measure Kafka's own logs."""
    with Kafka(optimised=True) as kafka:
        found = kafka.speed(folder, topics=topics, messages=MESSAGES, body=BODY)
    return Measured("Kafka", topics, found["rate"], found["p99"], int(found["read"]))


def main() -> None:
    if missing := maven.unavailable():
        sys.exit(missing)
    chart, *numbers = sys.argv[1:] or ["topics.svg"]
    runs: dict[tuple[str, int], list[Measured]] = {}
    for _ in range(ROUNDS):
        for topics in map(int, numbers or TOPICS):
            ways = [*map(of_forebay, ENGINES), of_rocketmq, of_kafka]
            for way in ways:
                with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
                    found = way(topics, pathlib.Path(folder))
                print(found, file=sys.stderr)
                runs.setdefault((found.engine, found.topics), []).append(found)
    medians = [
        replace(
            some[0],
            rate=statistics.median(it.rate for it in some),
            p99=statistics.median(it.p99 for it in some),
        )
        for some in runs.values()
    ]
    title = f"{MESSAGES:,} sends of {BODY} bytes, a reader beside, medians of {ROUNDS}"
    pathlib.Path(chart).write_text(svg(medians, title))
    for one in medians:
        print(f"{one.engine}\t{one.topics}\t{one.rate:.0f}\t{one.p99 * 1e6:.1f}")


if __name__ == "__main__":
    main()
