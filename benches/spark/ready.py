"""The limit: a Python data source that yields one batch from memory over and over.

Its time is Spark's own cost: the Python worker, the socket, and Arrow in the JVM.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pyarrow
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from forebay.spark.columns import KAFKA_COLUMNS, schema_of


class ReadyReader(DataSourceReader):
    def __init__(self, path: str, rows: int) -> None:
        self._path = path
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return two tasks of similar size."""
        return [InputPartition(self._rows // 2), InputPartition(self._rows - self._rows // 2)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the whole batch repeatedly, and a slice of it at the end."""
        with pyarrow.ipc.open_file(self._path) as file:
            batch = file.get_batch(0)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


class ReadyStreamReader(DataSourceStreamReader):
    """Yields one row for each trigger."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._latest = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        self._latest += 1
        return {"at": self._latest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        with pyarrow.ipc.open_file(self._path) as file:
            yield file.get_batch(0).slice(0, 1)


def ready_source(path: str, rows: int) -> type[DataSource]:
    """Return a data source with the columns of the Kafka connector."""
    here = pathlib.Path(path)

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self):
            return schema_of(KAFKA_COLUMNS)

        def reader(self, schema):
            return ReadyReader(str(here), rows)

        def streamReader(self, schema):
            return ReadyStreamReader(str(here))

    return Ready
