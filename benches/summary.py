"""Print the figures of `make bench` with their targets, and whether each target is met.

The benches write their medians to target/bench/*.tsv. A target is a number, or a multiple of
another figure of the same run.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Bench, figure, "at least" or "at most", and a number, or another figure and a factor.
Threshold = tuple[str, str, str, float | tuple[str, float]]
THRESHOLDS: list[Threshold] = [
    ("append", "100 B: send", "at least", ("100 B: limit", 0.5)),
    ("append", "100 B: send", "at least", 5.92e6),  # 8 times RocketMQ's own store
    ("append", "100 B: until caught up", "at least", 4e6),
    ("append", "1 KiB: send", "at least", ("1 KiB: limit", 0.6)),
    ("append", "batches of 1,000, 100 B: send", "at least", 8e6),
    ("append", "4 sending threads", "at least", ("1 sending thread", 0.9)),
    *(
        (
            "append",
            f"partition log, {codec}, batches of 100",
            "at least",
            (f"{codec} alone, batches of 100", 0.85),
        )
        for codec in ("lz4", "zstd")
    ),
    (
        "topics",
        "10000 topics in turn: send",
        "at least",
        ("1 topics in turn: send", 0.8),
    ),
    (
        "topics",
        "10000 topics in turn: until caught up",
        "at least",
        ("1 topics in turn: until caught up", 0.7),
    ),
    (
        "topics",
        "10000 topics at random: send",
        "at least",
        ("1 topics at random: send", 0.8),
    ),
    (
        "topics",
        "10000 topics at random: until caught up",
        "at least",
        ("1 topics at random: until caught up", 0.7),
    ),
    ("topics", "10000 queues: open after a close", "at most", 50),
    ("topics", "1000 partitions: send", "at least", ("1 partitions: send", 0.75)),
    ("topics", "10000 partitions: open after a close", "at most", 500),
    ("compact", "one pass: compaction", "at least", ("one pass: copy", 0.4)),
    ("read", "query by key: p50", "at most", 2e3),
    ("read", "query by key: p99", "at most", 20e3),
    ("read", "scan, 100 B: views, checked", "at least", 20e6),
    ("read", "scan, 100 B: gathered, checked", "at least", 20e6),
    ("read", "scan, 16 KiB: gathered, checked", "at least", ("scan, 16 KiB: memcpy", 0.6)),
    ("open", "memory outside the maps, 10,000 queues", "at most", 64),
    ("open", "empty store: open", "at most", 5),
    ("open", "empty store: create", "at most", 5),
    ("open", "store of one message: on disk", "at most", 100),
    ("durable", "1 senders, each flushed", "at least", ("raw sync of one record", 0.9)),
    ("durable", "64 senders, each flushed", "at least", 100e3),
    ("durable", "batches of 1,000, each flushed", "at least", 2e6),
    (
        "durable",
        "a million sends a second, with flushes: each",
        "at most",
        ("a million sends a second, without flushes: each", 1.1),
    ),
    ("durable", "a million sends a second, with flushes: p99.9", "at most", 100e3),
    ("durable", "open 2 GiB after a close", "at most", 50),
    ("durable", "open 2 GiB after a death", "at most", 300),
    ("durable", "open 2 GiB with 10000 queues after a close", "at most", 2e3),
    ("durable", "open 2 GiB with 10000 queues after a death", "at most", 2e3),
    ("python", "producer.send", "at least", 3e6),
    ("python", "send_batch(1,000)", "at least", 6e6),
    ("python", "send_arrow, 65,536 rows", "at least", 7e6),
    ("wait", "while busy: p50", "at most", 20),
    ("wait", "from idle: p50", "at most", 100),
    ("consume", "progress of 1,000 groups x 100 queues saved", "at most", 50),
    (
        "consume",
        "sends, all progress is saved again and again",
        "at least",
        ("sends, nothing is saved", 0.8),
    ),
    ("consume", "delivery after its time: longest", "at most", 100),
    ("consume", "delivery after its level: longest", "at most", 100),
    ("share", "one sender, shared", "at least", ("one sender, alone", 0.5)),
    ("share", "4 senders, shared", "at least", ("one sender, shared", 0.8)),
    ("share", "8 senders, 8 consumers, each message acknowledged", "at least", 100e3),
    ("share", "to a poll, while busy: p50", "at most", 20),
    ("share", "to a poll, from idle: p50", "at most", 100),
    ("share", "to a poll, a third leads, while busy: p50", "at most", 20),
    ("share", "to a poll, a third leads, from idle: p50", "at most", 100),
    ("share", "queues of a process that dies, after its window", "at most", 1e3),
    ("share", "queues of a process that hangs, after its window", "at most", 1e3),
    ("python", "read(1,000)", "at least", 2e6),
    ("python", "poll(1,000) and ack of all", "at least", 1e6),
    ("python", "query by key: p50", "at most", 5e3),
    ("python", "query by key: p99", "at most", 20e3),
    *(
        ("python", f"Ctrl-C in {call}: longest", "at most", 100)
        for call in ("a tail", "a poll", "a loop over a consumer", "a read", "a stream")
    ),
]


def short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {letter}"
    return f"{value:.2f} "


def load(bench: str) -> dict[str, tuple[float, str]]:
    """Read the figures of a bench; if one was measured twice, the last value counts."""
    path = ROOT / "target" / "bench" / f"{bench}.tsv"
    if not path.exists():
        return {}
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {row[0]: (float(row[2]), row[1]) for row in rows}


def main() -> None:
    figures = {bench: load(bench) for bench, *_ in THRESHOLDS}
    print(f"{'bench':<8}{'figure':<44}{'measured':>12} {'target':>21}")
    for bench, name, sense, asked in THRESHOLDS:
        if name not in figures[bench]:
            print(f"{bench:<8}{name:<44}{'-':>12}")
            continue
        value, unit = figures[bench][name]
        note = ""
        limit = asked
        if isinstance(limit, tuple):
            base, factor = limit
            if base not in figures[bench]:
                continue
            limit = figures[bench][base][0] * factor
            note = f" ({factor:.0%} of {base}; is {value / limit * factor:.0%})"
        is_met = value >= limit if sense == "at least" else value <= limit
        verdict = "met" if is_met else "NOT MET"
        text = f"{sense} {short(limit)}"
        print(f"{bench:<8}{name:<44}{short(value):>12} {text:>21} {unit:<11}{verdict}{note}")


if __name__ == "__main__":
    sys.exit(main())
