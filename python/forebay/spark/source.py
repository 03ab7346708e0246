"""The data source: creates readers and writers for Spark, and registers itself in a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from forebay.spark.columns import schema_of
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, columns_of, parse_options
from forebay.spark.plan import parallelism, processors
from forebay.spark.reader import ForebayReader, PushdownReader
from forebay.spark.sink import ForebayStreamWriter, ForebayWriter
from forebay.spark.write import check_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from forebay.spark.stream import ForebayStreamReader


class ForebayDataSource(DataSource):
    """Reads and writes the messages of a store; ``spark.read.format("forebay")``."""

    #: How many tasks the session runs at once; set by `forebay.spark.register`.
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "forebay"

    def schema(self) -> StructType:
        """Return the schema of the columns that the options select."""
        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> ForebayReader:
        """Return a batch reader; `schema` must be the source's own."""
        options = parse_options(self.options)
        _check_schema(schema, options)
        # Spark refuses a reader with pushFilters if filter pushdown is off in its configuration.
        kind = PushdownReader if options.pushdown else ForebayReader
        return kind(options, self.parallelism or processors())

    def streamReader(self, schema: StructType) -> ForebayStreamReader:
        """Return a stream reader; the schema is the same as for a batch."""
        from forebay.spark.pace import parse_stream_options
        from forebay.spark.stream import ForebayStreamReader

        options = parse_stream_options(self.options)
        _check_schema(schema, options.read)
        return ForebayStreamReader(options, self.parallelism or processors())

    def writer(self, schema: StructType, overwrite: bool) -> ForebayWriter:
        """Return a batch writer; the columns are those of the Kafka connector's sink."""
        modes = 'mode("append")'
        return ForebayWriter(check_write(self.options, schema, overwrite=overwrite, modes=modes))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> ForebayStreamWriter:
        """Return a stream writer, which appends each batch exactly once."""
        modes = 'outputMode("append")'
        options = check_write(self.options, schema, overwrite=overwrite, modes=modes)
        return ForebayStreamWriter(options)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    if schema != schema_of(options.columns):
        reason = "the schema is fixed; the option columns selects and orders columns"
        raise invalid("schema", schema.simpleString(), reason)


def register(spark: SparkSession) -> None:
    """Register the format in a session, with the session's parallelism.

    Parameters
    ----------
    spark
        The session. Without registration, or in a remote session, which does not report its
        parallelism, a read has as many partitions as the driver's machine has processors.

    Examples
    --------
    >>> forebay.spark.register(spark)  # doctest: +SKIP
    """
    # Spark plans partitions in a separate process, which has neither session nor configuration. So
    # the parallelism travels with the class: it is pickled by value, because no module contains it.
    known = {"parallelism": parallelism(spark)}
    source = type("ForebayDataSource", (ForebayDataSource,), known)
    spark.dataSource.register(source)
