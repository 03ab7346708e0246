"""The job `audit`: checks every record, queue entry and index entry against the log."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import forebay
from forebay import _forebay
from forebay.options import Progress
from forebay.spark.jobs.work import grouped, opened, run, tasks_at_once
from forebay.spark.options import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay import Damage
    from forebay._forebay import Finding, Stretch

#: Cost of checking an entry, expressed in bytes of the log that take the same time.
_ENTRY_WEIGHT = 512
#: Bytes of the log from which on a task is worth its overhead.
_TASK_WEIGHT_MIN = 64 << 20


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    path
        The store.
    records, queue_entries, index_entries
        Number of each that is intact.
    stale_checksums
        Copied messages that carry the checksum of their original, as brokers write them.
    damage
        All damage found, as from `Store.verify`.
    log_bytes
        Bytes of the log that were checked.
    tasks, seconds
        How many tasks of Spark did it, and how long it took.
    """

    path: str
    records: int
    queue_entries: int
    index_entries: int
    stale_checksums: int
    damage: tuple[Damage, ...]
    log_bytes: int
    tasks: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return not self.damage

    def _asdict(self) -> dict[str, Any]:
        names = (
            "ok", "path", "records", "queue_entries", "index_entries", "stale_checksums",
            "log_bytes", "tasks", "seconds",
        )  # fmt: skip
        facts = {name: getattr(self, name) for name in names}
        return facts | {"damage": [place._asdict() for place in self.damage]}


def audit(
    spark: SparkSession, path: str | os.PathLike[str], *, progress: Progress | None = None
) -> Audit:
    """Check a store as `Store.verify` does, with a Spark task per log file and group of entries.

    The store may be live, closed, or written by RocketMQ. It is read as it is when the audit
    begins, and it is not changed. If the log has holes, the entries are checked a second time,
    because those that point into a hole are lost with it: a damaged store takes two Spark jobs.

    Parameters
    ----------
    spark
        The session.
    path
        Directory of the store, which every worker must reach under this path.
    progress
        Called with the number of finished tasks and of all tasks; not in a remote session.

    Returns
    -------
    Audit
        Counts of intact records and entries, and all damage, as `Store.verify` reports them.

    Examples
    --------
    >>> forebay.spark.audit(spark, "events").ok  # doctest: +SKIP
    True
    """
    began = time.monotonic()
    root = local("path", path)
    token = uuid.uuid4().hex
    with forebay.open(root, mode="r") as store:
        parts = _forebay.verify_stretches(store)
        groups = grouped(list(map(_weight, parts)), 4 * tasks_at_once(spark), _TASK_WEIGHT_MIN)
        findings: dict[int, Finding] = {}
        tasks = len(groups)
        _check(spark, (token, root), parts, groups, [], findings, progress)
        logs = [number for number, part in enumerate(parts) if part.kind == "log"]
        holes = sorted({(it.start, it.end) for number in logs for it in findings[number].holes})
        if holes:
            # A hole that extends past the end of a file is found again in the next file.
            others = [[n for n in group if parts[n].kind != "log"] for group in groups]
            others = [group for group in others if group]
            tasks += len(others)
            _check(spark, (token, root), parts, others, _joined(holes), findings, progress)
        report = _forebay.verify_join(store, [findings[number] for number in range(len(parts))])
    return Audit(
        path=root,
        records=report.records,
        queue_entries=report.queue_entries,
        index_entries=report.index_entries,
        stale_checksums=report.stale_checksums,
        damage=tuple(report.damage),
        log_bytes=sum(parts[number].size for number in logs),
        tasks=tasks,
        seconds=time.monotonic() - began,
    )


def _weight(part: Stretch) -> int:
    return part.size if part.kind == "log" else _ENTRY_WEIGHT * part.size


def _joined(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in holes:
        if not joined or start >= joined[-1][1]:
            joined.append((start, end))
    return joined


@dataclass(frozen=True)
class _Task:
    token: str
    path: str
    parts: list[Stretch]
    holes: list[tuple[int, int]]


def _check(
    spark: SparkSession,
    store: tuple[str, str],
    parts: list[Stretch],
    groups: list[list[int]],
    holes: list[tuple[int, int]],
    findings: dict[int, Finding],
    progress: Progress | None,
) -> None:
    """Check groups of parts, and store the findings by part number."""
    tasks = [_Task(*store, [parts[number] for number in group], holes) for group in groups]
    for group, found in zip(groups, run(spark, tasks, _verify, progress), strict=True):
        findings.update(zip(group, found, strict=True))


def _verify(task: _Task) -> list[Finding]:
    return _forebay.verify_parts(opened(task.token, task.path), task.parts, task.holes)
