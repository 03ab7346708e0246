"""The data source: what Spark calls for readers and writers, and how a session learns of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from forebay.spark.columns import schema_of
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, columns_of, parse_options
from forebay.spark.plan import parallelism, processors
from forebay.spark.reader import ForebayReader, PushdownReader
from forebay.spark.sink import ForebayStreamWriter, ForebayWriter, check_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from forebay.spark.stream import ForebayStreamReader


class ForebayDataSource(DataSource):
    """Reads messages of a store; ``spark.read.format("forebay")``."""

    #: How many tasks the session runs at once; `forebay.spark.register` tells.
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "forebay"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> ForebayReader:
        """Return a reader; the schema is the source's own, and no other is taken."""
        options = parse_options(self.options)
        _check_schema(schema, options)
        # Spark refuses a reader that takes filters where its own configuration has that off.
        kind = PushdownReader if options.pushdown else ForebayReader
        return kind(options, self.parallelism or processors())

    def streamReader(self, schema: StructType) -> ForebayStreamReader:
        """Return a reader of a stream; its schema is that of a batch."""
        from forebay.spark.pace import parse_stream_options
        from forebay.spark.stream import ForebayStreamReader

        options = parse_stream_options(self.options)
        _check_schema(schema, options.read)
        return ForebayStreamReader(options, self.parallelism or processors())

    def writer(self, schema: StructType, overwrite: bool) -> ForebayWriter:
        """Return a writer of messages; columns as the Kafka connector's sink has them."""
        modes = 'mode("append")'
        return ForebayWriter(check_write(self.options, schema, overwrite=overwrite, modes=modes))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> ForebayStreamWriter:
        """Return a writer of a stream's batches, each of which is appended exactly once."""
        modes = 'outputMode("append")'
        options = check_write(self.options, schema, overwrite=overwrite, modes=modes)
        return ForebayStreamWriter(options)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    if schema != schema_of(options.columns):
        reason = "the schema is fixed; the option columns selects and orders columns"
        raise invalid("schema", schema.simpleString(), reason)


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
    known = {"parallelism": parallelism(spark)}
    source = type("ForebayDataSource", (ForebayDataSource,), known)
    spark.dataSource.register(source)
