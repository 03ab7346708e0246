"""One task's share of a write: its rows become a stage, a private file beside the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from forebay import _forebay

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

#: A stage as the core hands it over: name, contents (rows, and the sum of their checksums), and
#: stretches of the file.
Staged = tuple[str, tuple[int, int], list[tuple[int, int]]]


@dataclass
class StageMessage(WriterCommitMessage):
    """What a task tells the driver; a task without rows leaves no stage."""

    query: str
    staged: Staged | None


def stage(
    path: str, query: str, topic: str | None, batches: Iterator[pyarrow.RecordBatch]
) -> StageMessage:
    """Write the rows of a task to a stage of a query.

    It is not durable: a batch whose stages are lost with the power is not in the log, and is run
    again.

    Nobody reads a stage until a commit names it, so a task that fails, is repeated, or runs twice
    at once leaves nothing that counts.

    Raises
    ------
    ForebayError
        If a row cannot be a message: its attribute ``row`` counts from 0 within the task.
    """
    stager = _forebay.Stager(path, query, topic)
    try:
        for batch in batches:
            stager.write(batch)
        return StageMessage(query, stager.finish())
    finally:
        stager.close()
