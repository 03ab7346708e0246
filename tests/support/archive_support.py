"""Helpers for the tests of archives: a store with sealed files, and its content."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import forebay

FILE = 4 << 20
COLUMNS = ["topic", "queue", "offset", "position", "store_timestamp", "keys", "tags", "body"]


def fill(store: forebay.Store, files: int, seed: int = 1) -> None:
    """Send messages of two topics to a store until it has begun another log file."""
    choose = random.Random(seed)
    orders, bills = store.producer("orders"), store.producer("bills", queue=3)
    begun = store.flush()
    number = 0
    while store.stats().published < begun + files * FILE:
        bodies = [choose.randbytes(choose.randint(0, 3000)) for _ in range(200)]
        keys = [f"key-{seed}-{number + n}" for n in range(len(bodies))]
        orders.send_batch(bodies, keys=keys, tags=choose.choice(["paid", "open", None]))
        bills.send_batch(bodies[:7], properties={"region": "eu"})
        number += len(bodies)
    store.flush()


def small(path: Path, **options: Any) -> forebay.Store:
    """Open a store of small log files."""
    options.setdefault("commitlog_file_size", FILE)
    return forebay.open(path, default_queues=4, **options)


def rows(scan: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a scan by topic, queue and offset."""
    import pyarrow as pa

    table = pa.table(scan).to_pydict()
    return sorted(zip(*table.values(), strict=True), key=lambda row: row[:3])


def below(store: forebay.Store, archive: forebay.archive.Archive, **arguments: Any) -> Any:
    """Return the rows of a store that its archive also holds."""
    found = []
    for name, topic in archive.topics.items():
        ends = {queue.id: queue.max_offset for queue in topic.queues}
        queues = list(ends)
        found += rows(store.scan(name, queues=queues, end=ends, columns=COLUMNS, **arguments))
    return sorted(found, key=lambda row: row[:3])


def tree(path: Path) -> dict[str, str]:
    """Return a digest of every file in a directory."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
