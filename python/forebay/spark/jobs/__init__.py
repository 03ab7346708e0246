"""Long jobs over a store, divided into ranges of its files and run by a Spark cluster.

`audit` checks everything, `rebuild` builds queues and index from the log, `export` writes Parquet,
`report` counts, `compact` keeps the newest message of each key. Each takes a session and the
directory of a store, which every worker must reach under the same path, and returns its figures.
"""

from __future__ import annotations

from forebay.spark.jobs.audit import Audit, audit
from forebay.spark.jobs.compact import Compaction, compact
from forebay.spark.jobs.export import Export, export
from forebay.spark.jobs.figures import (
    HourFigures,
    KeyFigures,
    LagFigures,
    QueueFigures,
    Report,
    TopicFigures,
)
from forebay.spark.jobs.rebuild import Rebuild, rebuild
from forebay.spark.jobs.report import report

__all__ = [
    "Audit",
    "Compaction",
    "Export",
    "HourFigures",
    "KeyFigures",
    "LagFigures",
    "QueueFigures",
    "Rebuild",
    "Report",
    "TopicFigures",
    "audit",
    "compact",
    "export",
    "rebuild",
    "report",
]
