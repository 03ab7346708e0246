"""Parquet files of a scan, at least one per combination of partition values."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay import Scan

#: Rows after which a file is closed and another one begun.
_FILE_ROWS_MAX = 8_000_000
#: Maximum number of files that a task has open at once. Closing the oldest costs little: a queue is
#: in time order, so old partitions get no more rows.
_FILES_OPEN_MAX = 64


@dataclass(frozen=True)
class Piece:
    """A file that is complete and closed."""

    name: str
    #: Names and values of the partition, outermost first.
    partition: tuple[tuple[str, str], ...]
    rows: int
    bytes: int


class _Open:
    """A file that is being written."""

    def __init__(self, path: str, schema: Any, compression: str) -> None:
        import pyarrow.parquet  # type: ignore[import-untyped]

        self.path = path
        self.rows = 0
        with _named(path):
            self.writer = pyarrow.parquet.ParquetWriter(path, schema, compression=compression)

    def write(self, rows: Any) -> None:
        with _named(self.path):
            self.writer.write_table(rows)
        self.rows += rows.num_rows

    def close(self, partition: tuple[tuple[str, str], ...]) -> Piece:
        """Complete the file and make it durable."""
        with _named(self.path):
            self.writer.close()
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size
        return Piece(os.path.basename(self.path), partition, self.rows, size)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Add the path to file system errors that lack it, such as those of Arrow and descriptors."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), path) from error


def write_pieces(scan: Scan, stem: str, partitions: list[str], compression: str) -> list[Piece]:
    """Write a scan to files whose paths begin with `stem`."""
    import pyarrow

    pieces: list[Piece] = []
    files: dict[tuple[tuple[str, str], ...], _Open] = {}
    reader = pyarrow.RecordBatchReader.from_stream(scan)
    made = 0
    for batch in reader:
        for partition, rows in _split(pyarrow.Table.from_batches([batch]), partitions):
            kept = rows.drop_columns([name for name in partitions if name in rows.column_names])
            file = files.get(partition)
            if file is None:
                if len(files) >= _FILES_OPEN_MAX:
                    oldest = next(iter(files))
                    pieces.append(files.pop(oldest).close(oldest))
                file = _Open(f"{stem}-{made}.parquet", kept.schema, compression)
                files[partition] = file
                made += 1
            file.write(kept)
            if file.rows >= _FILE_ROWS_MAX:
                pieces.append(files.pop(partition).close(partition))
    pieces.extend(file.close(partition) for partition, file in files.items())
    return pieces


def _split(table: Any, partitions: list[str]) -> Iterator[tuple[tuple[tuple[str, str], ...], Any]]:
    """Split rows by partition; most batches have only one."""
    import pyarrow
    import pyarrow.compute  # type: ignore[import-untyped]

    compute = pyarrow.compute
    if not partitions:
        yield (), table
        return
    columns = {name: _values(table, name) for name in partitions}
    values = pyarrow.table(columns)
    unique = values.group_by(partitions).aggregate([]).to_pylist()
    for found in unique:
        partition = tuple((name, str(found[name])) for name in partitions)
        if len(unique) == 1:
            yield partition, table
            return
        mask = None
        for name in partitions:
            same = compute.equal(values.column(name), found[name])
            mask = same if mask is None else compute.and_(mask, same)
        yield partition, table.filter(mask)


def _values(table: Any, name: str) -> Any:
    import pyarrow
    import pyarrow.compute

    if name in ("topic", "queue"):
        return table.column(name).cast("string")
    pattern = "%Y-%m-%d" if name == "date" else "%H"
    seconds = table.column("store_timestamp").cast(pyarrow.timestamp("s", "UTC"), safe=False)
    return pyarrow.compute.strftime(seconds, pattern)
