"""The progress of a stream, recorded as a consumer group for other tools to see.

RocketMQ keeps the offsets of all groups in one table of a store, ``config/consumerOffset.json``,
which is replaced as a whole; in a partition log it is ``forebay.consumerOffset.json``. The writer
of a store and streams in other processes may all write it: each locks a file beside the table,
reads the table again and replaces only its own rows. A directory that Forebay has not written to is
left alone: its broker overwrites the table every few seconds from memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay._forebay import record_offsets
from forebay.errors import CorruptError, ForeignStoreError
from forebay.jsons import json_object
from forebay.spark.options import TopicQueue

_NAME = "consumerOffset.json"
#: A string, or a number used as a member name without the quotes that JSON requires.
_BARE_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,\s])(-?[0-9]+)(?=\s*:)')


def record(path: str, group: str, queues: Mapping[TopicQueue, int]) -> None:
    """Record the offsets of a group in a store, durably, and keep those of other groups.

    Raises
    ------
    ForeignStoreError
        If Forebay has not written to the store.
    CorruptError
        If the table exists and cannot be read; it is left unchanged.
    OSError
        If a file operation fails.
    """
    marks = ("forebay.state", "forebay.partitionlog")
    if not any(os.path.exists(os.path.join(path, mark)) for mark in marks):
        raise ForeignStoreError(
            f"the offset table of {path} belongs to a broker; a stream must not write to it",
            path=path,
        )
    record_offsets(path, group, dict(queues))


def read_table(config: Path) -> dict[str, Any]:
    """Read the table of a store; like RocketMQ, fall back to its copy if it is missing or invalid.

    Raises
    ------
    CorruptError
        If neither is valid.
    """
    problem = None
    for path in (config / _NAME, config / f"{_NAME}.bak"):
        try:
            text = path.read_text(encoding="utf-8")
            quoted = _BARE_NAME.sub(_quoted, text)
            table = json_object(quoted)
        except FileNotFoundError:
            continue
        except ValueError as error:
            problem = problem or (path, error)
            continue
        if isinstance(table.get("offsetTable", {}), dict):
            return table
        problem = problem or (path, ValueError("offsetTable is not an object"))
    if problem is None:
        return {}
    where, reason = problem
    raise CorruptError(
        f"{where} is not a valid offset table: {reason}; it was left unchanged",
        path=str(where),
        position=0,
        reason=str(reason),
    ) from reason


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f'"{found[1]}"'
