"""Stores as Spark DataFrames: ``spark.read.format("forebay")``.

The options and columns are those of Spark's Kafka connector, so a job moves by changing the format
and the address::

    import forebay.spark

    forebay.spark.register(spark)
    orders = spark.read.format("forebay").option("subscribe", "orders").load("events")
    orders.groupBy("partition").count().show()

`audit`, `rebuild`, `compact`, `export` and `report` are jobs; see `forebay.spark.jobs`.

Spark finds the source by itself where this package is installed beside it. `register` also tells
the source how many tasks the cluster runs at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

try:
    from forebay.spark.source import ForebayDataSource
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "pyspark":
        raise
    message = "forebay.spark needs PySpark 4.2 or later: pip install 'forebay[spark]'"
    raise ImportError(message) from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.jobs.audit import Audit, audit
    from forebay.spark.jobs.compact import Compaction, compact
    from forebay.spark.jobs.export import Export, export
    from forebay.spark.jobs.figures import Report
    from forebay.spark.jobs.rebuild import Rebuild, rebuild
    from forebay.spark.jobs.report import report

__all__ = [
    "Audit",
    "Compaction",
    "Export",
    "ForebayDataSource",
    "Rebuild",
    "Report",
    "audit",
    "compact",
    "export",
    "rebuild",
    "register",
    "report",
]


def __getattr__(name: str) -> object:
    # Processes that plan or read come here for the source alone, for each query anew.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("forebay.spark.jobs"), name)


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and the session's parallelism to the format.

    Parameters
    ----------
    spark
        The session. Without registration, or where the session does not tell its parallelism, as a
        remote one, a read is cut into as many partitions as the driver's machine has processors.

    Examples
    --------
    >>> forebay.spark.register(spark)  # doctest: +SKIP
    """
    # Partitions are planned in a process of its own that knows neither session nor configuration.
    # What it needs travels with the class, which is pickled by value because no module has it.
    from forebay.spark.plan import parallelism

    known = {"parallelism": parallelism(spark)}
    source = type("ForebayDataSource", (ForebayDataSource,), known)
    spark.dataSource.register(source)
