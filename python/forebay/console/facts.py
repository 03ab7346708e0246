"""What the pages show of a store besides messages. All of it blocks: call it in a thread."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping
from typing import Any

import forebay
from forebay._forebay import Damage, Queue, Stats, Store, Topic, WriterStats, fit
from forebay.console.bodies import cut
from forebay.console.messages import row, topic_of
from forebay.dead_letters import LetterQueue, dead_groups, letter_queues, letter_queues_of, origin
from forebay.errors import ForebayError

__all__ = [
    *("ROWS", "damage", "groups", "letters", "letters_of", "marks", "overview", "topic", "topics"),
]

#: Rows of a list: a page with more would be slow and of no use.
ROWS = 1_000
#: Queue entries that are read to know the bytes of a topic; beyond it they are estimated.
_ENTRIES = 500_000
#: Files that are counted for the sizes of folders.
_FILES = 20_000
_ALL = 1 << 62


def overview(store: Store, *, write: bool) -> dict[str, Any]:
    """Return the state of the store as a whole."""
    found = store.topics.values()
    ends = [(one.min_offset, one.max_offset) for each in found for one in each.queues]
    stats = store.stats()
    return {
        "path": store.path,
        "engine": store.engine,
        "mode": store.mode,
        "version": forebay.__version__,
        "write": write,
        "topics": len(found),
        "queues": len(ends),
        "messages": sum(end - first for first, end in ends),
        "stats": _stats(stats),
        **marks(store, stats),
        "disk_total": _disk_total(store.path),
        "damaged": len(store.damage),
        "lag": sum(one.lag for each in store.groups.values() for one in each),
        "recovery": store.recovery._asdict(),
    }


def marks(store: Store, stats: Stats) -> dict[str, int | None]:
    """Return the position after the last message, and how many bytes are not on the disk yet.

    Only in a commit log are positions bytes of one log. For a partition log, only the process that
    writes knows what is on the disk. Unknown values are None.
    """
    kind = store._meanings.kind
    is_known = kind.has_one_log or (kind.keeps_files and store.mode != "r")
    return {
        "position": stats.published if kind.has_one_log else None,
        "behind": stats.flush_behind if is_known else None,
    }


def _stats(stats: Stats | WriterStats) -> dict[str, Any]:
    found = stats._asdict()
    for name in ("put_latency", "flush_wait"):
        latency = getattr(stats, name)
        names = ("count", "mean", "p50", "p99", "p999", "max")
        found[name] = {one: getattr(latency, one) for one in names}
    if isinstance(stats, Stats) and stats.writer is not None:
        found["writer"] = _stats(stats.writer)
    return found


def _disk_total(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path).total
    return None


def _messages(queues: list[Queue]) -> int:
    return sum(queue.max_offset - queue.min_offset for queue in queues)


def topics(store: Store, part: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """Return the topics whose names contain `part`."""
    found = store.topics
    names = sorted(name for name in found if part.lower() in name.lower())
    rows = [_topic(found[name], rates) for name in names[:ROWS]]
    return {"topics": rows, "matching": len(names), "all": len(found)}


def _topic(found: Topic, rates: Mapping[str, float]) -> dict[str, Any]:
    queues = found.queues
    return {
        "name": found.name,
        "queues": len(queues),
        "messages": _messages(queues),
        "per_second": rates.get(found.name),
        "readable": found.readable,
        "writable": found.writable,
    }


def topic(store: Store, name: str, rates: Mapping[str, float]) -> dict[str, Any]:
    """Return a topic with its queues."""
    found = topic_of(store, name)
    queues = found.queues
    exact = _messages(queues) <= _ENTRIES
    rows = [_queue(store, name, queue, exact=exact) for queue in queues[:ROWS]]
    return _topic(found, rates) | {"rows": rows, "bytes_exact": exact}


def _queue(store: Store, name: str, queue: Queue, *, exact: bool) -> dict[str, Any]:
    first, end = queue.min_offset, queue.max_offset
    start = first if exact else max(first, end - ROWS)
    size = last = None
    # Damage, and messages that are retired meanwhile, leave these two unknown.
    with contextlib.suppress(ForebayError):
        size = fit(store, name, queue.id, start, end, _ALL).bytes
        if start > first:
            size = round(size / (end - start) * (end - first))
    with contextlib.suppress(ForebayError):
        last = store.get(name, queue.id, end - 1).store_timestamp if end > first else None
    return {"id": queue.id, "min": first, "max": end, "bytes": size, "last": last}


def groups(store: Store) -> dict[str, Any]:
    """Return the progress of all groups, by queue."""
    names = ("topic", "queue", "committed", "max_offset", "lag", "lag_bytes", "lag_seconds")
    more = ("unsettled", "retries", "owner", "progress_timestamp")
    found = store.groups
    left, rows = ROWS, []
    for group, queues in sorted(found.items()):
        shown = queues[:left]
        left -= len(shown)
        rows.append(
            {
                "group": group,
                "lag": sum(one.lag for one in queues),
                "lag_bytes": sum(one.lag_bytes for one in queues),
                "lag_seconds": max((one.lag_seconds for one in queues), default=0),
                "unsettled": sum(one.unsettled for one in queues),
                "queues": [{name: getattr(one, name) for name in names + more} for one in shown],
                "more": len(queues) - len(shown),
            }
        )
        if len(rows) >= ROWS:
            break
    return {"groups": rows, "all": len(found)}


def letters(store: Store) -> dict[str, Any]:
    """Return the groups that have dead letters."""
    found = dead_groups(store)
    rows = [
        {
            "group": group,
            "waiting": sum(one.waiting for one in queues),
            "messages": sum(one.end - one.first for one in queues),
        }
        for group, queues in letter_queues_of(store, found[:ROWS]).items()
    ]
    return {"groups": rows, "all": len(found)}


def letters_of(store: Store, group: str, limit: int) -> dict[str, Any]:
    """Return the first dead letters of a group that wait."""
    queues = letter_queues(store, group)
    if not queues:
        raise LookupError(f'there is no dead letter of group "{cut(group)}"')
    found = itertools.chain.from_iterable(_waiting(store, one, limit) for one in queues)
    return {
        "group": group,
        "waiting": sum(one.waiting for one in queues),
        "letters": [row(one) | origin(one) for one in itertools.islice(found, limit)],
    }


def _waiting(store: Store, queue: LetterQueue, limit: int) -> Any:
    return queue.read(store, start=queue.next, limit=min(limit, queue.waiting))


def damage(store: Store) -> dict[str, Any]:
    """Return the damage that was found, and how large each folder of the store is."""
    found = store.damage
    sizes, whole = _sizes(store.path)
    return {
        "damage": [_place(one) for one in found[:ROWS]],
        "all": len(found),
        "folders": sizes,
        "folders_whole": whole,
    }


def _place(one: Damage) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "path": one.path,
        "position": one.position,
        "length": one.length,
        "reason": one.reason,
        "lost": [f"{name}-{queue}@{offset}" for name, queue, offset in one.lost[:8]],
        "lost_all": len(one.lost),
    }


def _sizes(root: str) -> tuple[list[dict[str, Any]], bool]:
    """Return file lengths and allocated bytes by folder, and whether all files were counted."""
    rows: dict[str, dict[str, Any]] = {}
    left = _FILES
    for folder, _folders, files in os.walk(root):
        top = os.path.relpath(folder, root).split(os.sep)[0]
        for name in files:
            left -= 1
            if left < 0:
                return [rows[one] for one in sorted(rows)], False
            # A writer may retire the file meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(os.path.join(folder, name))
                one = rows.setdefault(top, {"name": top, "files": 0, "bytes": 0, "allocated": 0})
                one["files"] += 1
                one["bytes"] += found.st_size
                one["allocated"] += found.st_blocks * 512
    return [rows[one] for one in sorted(rows)], True
