"""The verb export: writes messages to a file that other systems can read.

Parquet and Arrow are written batch by batch from a scan, JSON lines and CSV message by message, so
memory use does not grow with the store. The file gets its name once it is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import forebay
from forebay.cli.arguments import UsageError, add_bounds, add_store, limit
from forebay.cli.read import Slice, report_damage
from forebay.cli.rows import Writer
from forebay.durable import written_whole
from forebay.output import counted, human, stdout, write_line
from forebay.progress import Bar

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]
    from typing_extensions import Buffer

__all__ = ["add"]

_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
}
_FORMATS = ("parquet", "arrow", "jsonl", "csv")
#: A batch becomes a Parquet row group, which readers skip or decode as a unit.
_BATCH_ROWS = 262_144
_BATCH_BYTES = 64 << 20


def add(verbs: Any) -> None:
    """Add the verb to the parser."""
    text = "write messages to a Parquet, Arrow IPC, JSON lines or CSV file"
    parser = verbs.add_parser("export", help=text, description=text, allow_abbrev=False)
    add_store(parser)
    parser.add_argument(
        "output",
        metavar="FILE",
        help="the ending selects the format; - is standard output and needs --format",
    )
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", help="only this topic; may be repeated"
    )
    add_bounds(parser)
    parser.add_argument("--format", choices=_FORMATS, help="the format, regardless of the ending")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> int:
    target = Path(arguments.output)
    piped = arguments.output == "-"
    form = arguments.format or _ENDINGS.get(target.suffix.lower())
    if form is None and piped:
        raise UsageError(f"standard output needs --format, one of {', '.join(_FORMATS)}")
    if form is None:
        reason = f"cannot tell the format from the ending of {target.name}"
        raise UsageError(f"{reason}: use one of {', '.join(_ENDINGS)}, or --format")
    limits = {
        "start": limit(arguments.start, arguments.queue),
        "end": limit(arguments.end, arguments.queue),
    }
    if form in ("parquet", "arrow"):
        _need_pyarrow(form)
    if not piped:
        _check_target(target, force=arguments.force)
    with forebay.open(arguments.store, mode="r") as store:
        slices = _slices(store, arguments, limits)
        total = sum(len(part) for part in slices)
        opened = _standard_output(form) if piped else written_whole(target)
        with Bar("exporting", "messages") as progress, opened as handle:
            if form in ("parquet", "arrow"):
                rows, damage = _write_arrow(store, arguments, limits, handle, form, progress, total)
            else:
                rows = _write_text(slices, handle, form, progress, total)
                damage = store.damage
        if not piped:
            size = human(target.stat().st_size)
            write_line(f"wrote {counted(rows, 'message')} to {target}, {size}")
        return report_damage(damage)


def _slices(
    store: forebay.Store, arguments: argparse.Namespace, limits: dict[str, Any]
) -> list[Slice]:
    topics = arguments.topic or sorted(store.topics)
    return [
        Slice(store, topic, queues=arguments.queue, tags=arguments.tags, **limits)
        for topic in topics
    ]


def _write_text(slices: list[Slice], handle: BinaryIO, form: str, progress: Bar, total: int) -> int:
    writer = Writer(handle, form)
    rows = 0
    for part in slices:
        for message in part:
            writer.write(message)
            rows += 1
            if rows % 1024 == 0:
                progress(rows, total)
    return rows


def _write_arrow(
    store: forebay.Store,
    arguments: argparse.Namespace,
    limits: dict[str, Any],
    handle: BinaryIO,
    form: str,
    progress: Bar,
    total: int,
) -> tuple[int, list[forebay.Damage]]:
    import pyarrow

    scan = store.scan(
        arguments.topic,
        queues=arguments.queue,
        tags=arguments.tags,
        batch_rows=_BATCH_ROWS,
        batch_bytes=_BATCH_BYTES,
        **limits,
    )
    rows = 0
    batches = pyarrow.RecordBatchReader.from_stream(scan)
    if form == "arrow":
        # An IPC file has one dictionary for all batches; each batch of a scan has its own.
        topic = batches.schema.get_field_index("topic")
        plain_topic = batches.schema.field(topic).with_type(pyarrow.utf8())
        batches = batches.cast(batches.schema.set(topic, plain_topic))
    with _sink(form, handle, batches.schema) as sink:
        for batch in batches:
            sink.write_batch(batch)
            rows += batch.num_rows
            progress(rows, total)
    return rows, [*scan.damage, *store.damage]


@contextlib.contextmanager
def _sink(form: str, handle: BinaryIO, schema: pyarrow.Schema) -> Iterator[Any]:
    """Yield the format's writer of batches, and close it."""
    if form == "parquet":
        from pyarrow.parquet import ParquetWriter  # type: ignore[import-untyped]

        sink = ParquetWriter(handle, schema, compression="zstd")
    else:
        import pyarrow

        sink = pyarrow.ipc.new_file(handle, schema)
    try:
        yield sink
        sink.close()
    except BaseException:
        # The file will be removed. The writer's finaliser would try to close it and print an error.
        sink.is_open = False
        raise


def _need_pyarrow(form: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        reason = f"writing {form} needs pyarrow: pip install 'forebay[arrow]'"
        raise forebay.UnsupportedError(reason) from error


def _check_target(target: Path, *, force: bool) -> None:
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    # A rename would replace a link to a folder, or a device, by a file.
    if not stat.S_ISREG(mode):
        raise FileExistsError(f"{target} exists and is not a regular file")
    if not force:
        raise FileExistsError(f"{target} already exists; pass --force to replace it")


class _Pipe(io.RawIOBase):
    """A stream that counts its position, which Parquet and Arrow need and a pipe does not have."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        # The buffered sink takes all bytes; a raw stream on a full pipe would take only some.
        self._sink.write(data)
        self._position += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._position


@contextlib.contextmanager
def _standard_output(form: str) -> Iterator[BinaryIO]:
    """Yield standard output as a stream for the format's writer; `main` flushes it."""
    if form in ("parquet", "arrow") and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(f"{form} is binary and not for a terminal: write it to a file or a pipe")
    yield cast("BinaryIO", _Pipe(stdout()))
