"""The data source: what Spark calls for readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource

from forebay.spark.columns import schema_of
from forebay.spark.errors import invalid
from forebay.spark.options import ReadOptions, columns_of, parse_options
from forebay.spark.plan import processors
from forebay.spark.reader import ForebayReader, PushdownReader
from forebay.spark.sink import ForebayStreamWriter, ForebayWriter, check_write

if TYPE_CHECKING:
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
