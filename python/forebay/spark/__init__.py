"""Stores as Spark DataFrames: ``spark.read.format("forebay")``.

The options and columns are those of Spark's Kafka connector, so moving a job takes only a change of
format and address:

    import forebay.spark

    forebay.spark.register(spark)
    orders = spark.read.format("forebay").option("subscribe", "orders").load("events")
    orders.groupBy("partition").count().show()

`audit`, `rebuild`, `compact`, `export` and `report` are jobs; see `forebay.spark.jobs`.

Spark finds the source by itself if this package is installed alongside it. `register` also tells
the source how many tasks the cluster runs at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

try:
    from forebay.spark.source import ForebayDataSource, register
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "pyspark":
        raise
    message = "forebay.spark needs PySpark 4.2 or later: pip install 'forebay[spark]'"
    raise ImportError(message) from error

if TYPE_CHECKING:
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
    "ForebayDataSource",
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
    "register",
    "report",
]


def __getattr__(name: str) -> object:
    # Imported on demand: for each query, Spark's planning and reading processes import this module
    # for the source alone.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("forebay.spark.jobs"), name)
