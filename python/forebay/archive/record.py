"""The file of a store that records its archives, and how far each has the log."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forebay.archive.writing import read_small
from forebay.durable import replace_file
from forebay.jsons import json_object

__all__ = ["NOTE", "is_recorded", "record", "withdraw"]

NOTE = "forebay.archived"
#: Files of which Forebay's own stores have one.
_OWN = ("forebay.state", "forebay.partitionlog")


def record(store: str, target: str, reached: int | Mapping[str, int]) -> bool:
    """Record how far a store is archived, for its retention; safe while a writer is running.

    `reached` is a position of the log; of a partition log, an offset for each queue.
    """

    def add(targets: dict[str, Any]) -> bool:
        before = targets.get(target)
        if isinstance(reached, int):
            targets[target] = reached
        else:
            targets[target] = {**(before if isinstance(before, dict) else {}), **reached}
        return True

    return _change(store, add)


def withdraw(store: str, target: str) -> None:
    """Record that an archive has nothing of a store, if it is recorded: retention then waits."""

    def remove(targets: dict[str, Any]) -> bool:
        before = targets.get(target)
        if before:
            targets[target] = {} if isinstance(before, dict) else 0
        return bool(before)

    _change(store, remove)


def is_recorded(store: str, target: str, end: int, queue: str | None = None) -> bool:
    """Return whether it is recorded that an archive has a store up to this position or offset.

    `queue` is the folder of a queue of a partition log. True in another system's directory, where
    nothing is recorded.
    """
    if not _is_own(store):
        return True
    try:
        reached = _noted(Path(store) / NOTE).get(target)
    except (OSError, ValueError):
        return False
    if queue is not None:
        reached = reached.get(queue) if isinstance(reached, dict) else None
    return isinstance(reached, int) and reached >= end


def _is_own(store: str) -> bool:
    return any(os.path.exists(os.path.join(store, name)) for name in _OWN)


def _change(store: str, change: Callable[[dict[str, Any]], bool]) -> bool:
    """Change the recorded positions by target; return False if they cannot be changed.

    They are written if `change` returns true.
    """
    import fcntl

    if not _is_own(store):
        return False
    note = Path(store) / NOTE
    try:
        directory = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Archivers take turns to change the table.
            fcntl.flock(directory, fcntl.LOCK_EX)
            targets = _noted(note)
            if change(targets):
                data = json.dumps({"targets": targets}).encode().removesuffix(b"}")
                replace_file(note, data + _sum_of(data) + b"\n", mode=0o600)
        finally:
            os.close(directory)
    except (OSError, ValueError):
        # Retention keeps what is not recorded, and keeps everything if the record is unreadable.
        # Writing a fresh record would drop the other archives from it, and retention could then
        # delete files that they still lack.
        return False
    return True


def _noted(note: Path) -> dict[str, Any]:
    """Return the recorded positions by target; raise `ValueError` if the record is malformed."""
    try:
        text = read_small(str(note))
    except FileNotFoundError:
        return {}
    table = json_object(text)
    # An earlier version wrote none, and a user who removes a target removes it.
    if "crc32" in table:
        text = text.rstrip()
        covered = text[: -len(_sum_of(b""))]
        if text != covered + _sum_of(covered):
            raise ValueError("its checksum is wrong")
    targets = table.get("targets")
    if not isinstance(targets, dict):
        raise ValueError("it has no targets")
    return targets


def _sum_of(covered: bytes) -> bytes:
    """Return the end of a record that begins with these bytes: their checksum."""
    return b', "crc32": "%08x"}' % zlib.crc32(covered)
