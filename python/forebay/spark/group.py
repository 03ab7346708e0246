"""The progress of a stream as that of a consumer group, for other tools to see.

RocketMQ keeps the offsets of all groups in one table of a store, ``config/consumerOffset.json``,
which is replaced as a whole. Forebay's writer reads it, to keep what groups have not consumed, and
does not write it, so a stream beside the writer may. Streams exclude one another by a lock on a
file beside the table. A directory in which Forebay has not written is left alone: its broker
replaces the table every few seconds by what it has in memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.durable import sync_directory
from forebay.errors import CorruptError, ForeignStoreError
from forebay.spark.options import TopicQueue

_NAME = "consumerOffset.json"
_LOCK = "consumerOffset.lock"
#: A text, or a number that stands as a name without the quotes that JSON asks for.
_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?[0-9]+)(?=\s*:)')


def record(path: str, group: str, queues: Mapping[TopicQueue, int]) -> None:
    """Write into a store how far a group has come, durably, and leave the other groups as they are.

    Raises
    ------
    ForeignStoreError
        If Forebay has not written to the store.
    CorruptError
        If the table is there and cannot be read; it is left as it is.
    OSError
        As the file system has it.
    """
    # Not everywhere, and the module is imported everywhere.
    import fcntl

    if not os.path.exists(os.path.join(path, "forebay.state")):
        raise ForeignStoreError(
            f"the group {group!r} is not recorded in {path}: its table of offsets is a broker's",
            path=path,
        )
    config = Path(path, "config")
    config.mkdir(mode=0o700, exist_ok=True)
    with open(config / _LOCK, "a", encoding="ascii", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table = read_table(config)
        offsets = table.setdefault("offsetTable", {})
        for (topic, queue), offset in sorted(queues.items()):
            offsets.setdefault(f"{topic}@{group}", {})[str(queue)] = offset
        _replace(config, json.dumps(table, indent="\t"))


def read_table(config: Path) -> dict[str, Any]:
    """Read the table of a store; like RocketMQ, from its copy where it is missing or no table.

    Raises
    ------
    CorruptError
        If neither can be read.
    """
    problem = None
    for path in (config / _NAME, config / f"{_NAME}.bak"):
        try:
            text = path.read_text(encoding="utf-8")
            quoted = _BARE_NAME.sub(_quoted, text)
            table = json.loads(quoted)
        except FileNotFoundError:
            continue
        except ValueError as error:
            problem = problem or (path, error)
            continue
        if isinstance(table, dict) and isinstance(table.get("offsetTable", {}), dict):
            return table
        problem = problem or (path, ValueError("it is no table of offsets"))
    if problem is None:
        return {}
    where, reason = problem
    raise CorruptError(
        f"{where} is no table of offsets: {reason}; it is left as it is",
        path=str(where),
        position=0,
        reason=str(reason),
    ) from reason


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f'"{found[1]}"'


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _replace(config: Path, text: str) -> None:
    """Replace the table: at no moment is there none, or half of one."""
    # The lock is held, so nobody else has a file of this name; what a crash left is written over.
    fresh = config / f"{_NAME}.tmp"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(fresh, config / _NAME)
    sync_directory(config)
