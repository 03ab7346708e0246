"""Lets Spark find Forebay by itself.

At the first use of a data source a session imports every top-level module whose name starts with
``pyspark_`` and registers its ``DefaultSource``.
"""

from forebay.spark.source import ForebayDataSource as DefaultSource

__all__ = ["DefaultSource"]
