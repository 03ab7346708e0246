"""Sends of a process beside the take-up of commits that other processes staged.

A sender keeps a store open and sends. Meanwhile a large commit, staged before, and then a small one
of another query are published. Prints how long sends took while nothing was taken up and meanwhile,
and when each commit was in the log.

    python benches/python/take_up.py [rows of the large commit]
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

import forebay
from forebay import _forebay

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 600_000
STAGES = 5
BATCH_ROWS = 10_000
#: The small commit is published this long after the large one.
LATER_S = 0.3
IDLE_S = 3.0
TIMEOUT_S = 600.0

#: Sends until a file exists; says when it is ready, and at its end when each send began and how
#: long it took, in seconds.
SENDER = """
import json, os, sys, time
import forebay

root, stop = sys.argv[1:]
with forebay.open(root) as store:
    producer = store.producer("own")
    producer.send(b"")
    print("ready", flush=True)
    sent = []
    while not os.path.exists(stop):
        began = time.perf_counter()
        producer.send(b"x" * 200)
        sent.append((time.time(), time.perf_counter() - began))
        time.sleep(0.0005)
print(json.dumps(sent))
"""


def stage(path: pathlib.Path, query: str, rows: int) -> _forebay._Staged | None:
    stager = _forebay.Stager(path, query, "t")
    for begin in range(0, rows, BATCH_ROWS):
        numbers = range(begin, min(begin + BATCH_ROWS, rows))
        values = pa.array([(b"%d" % it).ljust(100, b"x") for it in numbers])
        stager.write(pa.record_batch({"key": [str(it) for it in numbers], "value": values}))
    return stager.finish()


def gone(path: pathlib.Path, query: str) -> float:
    """Wait until a commit is in the log; return the time."""
    state = _forebay.wait_for_commit(path, query, 0, TIMEOUT_S).state
    if state != "gone":
        raise RuntimeError(f"the commit of {query} is {state}")
    return time.time()


def tell(name: str, took: list[float]) -> None:
    took.sort()
    at = [took[min(int(len(took) * part), len(took) - 1)] for part in (0.5, 0.99, 0.999, 1)]
    p50, p99, p999, most = (1e3 * it for it in at)
    print(
        f"{name}: {len(took)} sends, p50 {p50:.3f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms, "
        f"max {most:.1f} ms"
    )


def main() -> None:
    folder = ROOT / "target" / "bench-data" / "take-up"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path, stop = folder / "store", folder / "stop"
    forebay.open(path).close()
    large = [stage(path, "large", ROWS // STAGES) for _ in range(STAGES)]
    small = [stage(path, "small", 1_000)]
    command = [sys.executable, "-c", SENDER, str(path), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        sender.stdout.readline()
        time.sleep(IDLE_S)
        began = time.time()
        _forebay.publish_commit(path, "large", 0, "batch", large)
        time.sleep(LATER_S)
        later = time.time()
        _forebay.publish_commit(path, "small", 0, "batch", small)
        with ThreadPoolExecutor() as pool:
            waits = [pool.submit(gone, path, query) for query in ("small", "large")]
            small_ended, ended = (wait.result() for wait in waits)
        time.sleep(IDLE_S)
        stop.touch()
        sent = json.loads(sender.stdout.readline())
    print(f"the large commit, of {ROWS} rows: {ended - began:.2f} s")
    print(f"the small commit behind it: {small_ended - later:.2f} s")
    # The flush after the take-up is not counted as idle.
    tell("idle", [it for at, it in sent if at < began or at > ended + 0.5])
    tell("during the take-up", [it for at, it in sent if began <= at <= ended])
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
