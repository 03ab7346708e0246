"""One task's share of a write: its rows become a stage, a private file beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from forebay import _forebay

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]


@dataclass
class StageMessage(WriterCommitMessage):
    """What a task reports to the driver; `staged` is None for a task without rows."""

    query: str
    staged: _forebay.Staged | None


def stage(
    path: str, query: str, topic: str | None, batches: Iterator[pyarrow.RecordBatch]
) -> StageMessage:
    """Write the rows of a task to a stage of a query.

    A stage is not durable: if a power loss destroys stages, their batch is not in the log and runs
    again.

    A stage takes effect only when a commit names it. So a task that fails, is repeated, or runs
    twice at the same time has no effect of its own.

    Raises
    ------
    ForebayError
        If a row is not a valid message; its attribute ``row`` counts from 0 within the task.
    """
    stager = _forebay.Stager(path, query, topic)
    try:
        for batch in batches:
            stager.write(batch)
        return StageMessage(query, stager.finish())
    finally:
        stager.close()
