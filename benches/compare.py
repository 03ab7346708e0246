"""Put messages into the real RocketMQ's store and into Forebay, in turn, on the same disk.

This needs Maven and a JDK, as tests/compat does. Each run is a separate process that warms up
first. The figures are medians of FOREBAY_BENCH_ROUNDS runs (default 5), each of FOREBAY_BENCH_BYTES
of records (default 1 GiB): one thread, asynchronous flush, a key of 8 bytes per message.

    python benches/compare.py
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

ROUNDS = int(os.environ.get("FOREBAY_BENCH_ROUNDS", "5"))
BYTES = int(os.environ.get("FOREBAY_BENCH_BYTES", str(1 << 30)))
OVERHEAD = 130


def rocketmq_rate(directory: str, body: int) -> float:
    """Return the messages per second of RocketMQ's own store."""
    return rocketmq.speed(directory, count=BYTES // (body + OVERHEAD), body=body)


def forebay_rate(group: str, figure: str) -> float:
    """Return the messages per second of one run of the core's own bench."""
    environment = {**os.environ, "FOREBAY_BENCH_ROUNDS": "1", "FOREBAY_BENCH_BYTES": str(BYTES)}
    command = ["cargo", "bench", "--locked", "--quiet", "--bench", "append", "--", group]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    lines = (ROOT / "target" / "bench" / "append.tsv").read_text().splitlines()
    rates = [line.split("\t")[2] for line in lines if line.startswith(f"{figure}\t")]
    return float(rates[-1])


def main() -> None:
    missing = maven.unavailable()
    if missing is not None:
        sys.exit(missing)
    for name, body, group in (("100 B", 100, "single"), ("1 KiB", 1024, "kib")):
        theirs, ours = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(dir=ROOT / "target", prefix="compare-") as scratch:
                theirs.append(rocketmq_rate(f"{scratch}/store", body))
            ours.append(forebay_rate(group, f"{name}: send"))
        one, other = statistics.median(theirs), statistics.median(ours)
        times = other / one
        print(f"{name}: RocketMQ {one / 1e6:.2f} M/s, Forebay {other / 1e6:.2f} M/s, {times:.1f} x")


if __name__ == "__main__":
    main()
