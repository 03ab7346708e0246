"""Archives: CPU and wall time to create one of 1 GiB, and to read it, compared with its store.

    python benches/archive.py DIRECTORY

Messages have 100 bytes and a key. Store and archive are read in turn, three times, from the page
cache. The time of a copy includes the syncs.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow

import forebay
import forebay.archive

FILES, FILE = 4, 256 << 20


def measured(what: str, work: Callable[[], Any], size: int) -> Any:
    """Run some work and print its times."""
    wall, processor = time.perf_counter(), time.process_time()
    done = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    rate = f"{size / wall / 1e6:,.2f} million per second"
    print(f"{what}: {wall:.2f} s, CPU {processor:.2f} s, {rate}", flush=True)
    return done


def rows(scan: Any) -> int:
    return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(scan))


def main(folder: Path) -> None:
    """Fill a store, archive it, and read both."""
    shutil.rmtree(folder, ignore_errors=True)
    with forebay.open(folder / "events", commitlog_file_size=FILE) as store:
        producer = store.producer("orders")
        sent = 0
        while store.stats().published < FILES * FILE:
            keys = [f"key-{sent + number}" for number in range(1000)]
            producer.send_batch([b"x" * 100] * 1000, keys=keys)
            sent += 1000
        store.flush()
        measured("archive, bytes", lambda: store.archive(folder / "archive"), FILES * FILE)
        archive = forebay.archive.open(folder / "archive")
        measured("verify, bytes", archive.verify, FILES * FILE)
        queues = archive.topics["orders"].queues
        ends = {queue.id: queue.max_offset for queue in queues}
        for columns in (None, ["offset", "body"]):
            for _ in range(3):
                scan = store.scan("orders", columns=columns, end=ends)
                measured(
                    f"store scan {columns}, rows", lambda scan=scan: rows(scan), sum(ends.values())
                )
                scan = archive.scan("orders", columns=columns)
                measured(
                    f"archive scan {columns}, rows",
                    lambda scan=scan: rows(scan),
                    sum(ends.values()),
                )
        scan = archive.scan("orders", key="key-777")
        measured("one key, rows", lambda: rows(scan), 1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
