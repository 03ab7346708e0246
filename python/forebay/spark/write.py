"""The options and columns of a write, checked before a task runs."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import forebay
from forebay import _forebay
from forebay.errors import StoreLockedError, UnsupportedError
from forebay.given import FILE_ENGINES
from forebay.options import FileEngine
from forebay.spark.errors import did_you_mean, invalid, must, unknown
from forebay.spark.options import LONG_MAX, directory, truth

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "COLUMNS",
    "NAMES",
    "WriteOptions",
    "check_schema",
    "check_write",
    "parse_write_options",
    "query_of",
]

NAMES = (
    "path",
    "topic",
    "commitTimeout",
    "batchConflict",
    "txnAppId",
    "txnVersion",
    "ignoreExtraColumns",
    "engine",
)
#: Spark's own options, which it passes along with those of the format.
_SPARKS = ("checkpointlocation", "queryname")
_COMMIT_TIMEOUT = 60.0
_CONFLICTS = ("fail", "append", "skip")
#: Application ids that can be part of a query name; others are replaced by their hash.
_PLAIN_ID = re.compile("[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True)
class WriteOptions:
    """Where and how to write."""

    path: str
    #: Topic for all rows; without it the column ``topic`` decides.
    topic: str | None = None
    #: How long, in seconds, a commit waits for the process that writes the store while that process
    #: appends no commit.
    commit_timeout: float = _COMMIT_TIMEOUT
    #: What to do with a batch whose number is in the log with other rows.
    batch_conflict: str = "fail"
    #: Application and version of a batch write that takes effect once, however often it is run.
    transaction: tuple[str, int] | None = None
    #: Whether to ignore columns that a message does not have.
    ignore_extra: bool = False
    #: The engine of the store; without it that of the store that exists, or a commit log.
    engine: FileEngine | None = None


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write; names are not case-sensitive.

    Raises
    ------
    InvalidOptionError
        If a name is unknown or a value is invalid.
    """
    names = {name.lower(): name for name in NAMES}
    options = {}
    for name, value in given.items():
        known = names.get(name.lower())
        if known is not None:
            options[known] = value
        elif name.lower().startswith("kafka."):
            raise unknown(name, "it configures a Kafka client, and a store has none")
        elif name.lower() not in _SPARKS:
            hint = did_you_mean(name, NAMES)
            reason = f"no such option of a write{hint}; the options are {', '.join(NAMES)}"
            raise unknown(name, reason)
    timeout = _COMMIT_TIMEOUT
    if "commitTimeout" in options:
        text = options["commitTimeout"]
        try:
            timeout = float(text)
        except ValueError:
            timeout = math.nan
        if not 0 < timeout < 1e9:
            rule = "be a number of seconds above 0 and below 1e9"
            raise must("commitTimeout", text, rule)
    transaction = _transaction(options)
    # An application that repeats a version retries the write that is already done.
    conflict = options.get("batchConflict", "fail" if transaction is None else "skip")
    if conflict not in _CONFLICTS:
        raise must("batchConflict", conflict, f"be one of {', '.join(_CONFLICTS)}")
    named = options.get("engine")
    engine = next((engine for engine in FILE_ENGINES if engine == named), None)
    if named is not None and engine is None:
        raise must("engine", named, f"be one of {', '.join(FILE_ENGINES)}")
    path = directory("path", options.get("path", ""), ".save(path) or .start(path)")
    ignore = truth(options, "ignoreExtraColumns", default=False)
    return WriteOptions(path, options.get("topic"), timeout, conflict, transaction, ignore, engine)


def _transaction(options: Mapping[str, str]) -> tuple[str, int] | None:
    names = ("txnAppId", "txnVersion")
    given = [name for name in names if name in options]
    if not given:
        return None
    if len(given) == 1:
        (missing,) = set(names) - set(given)
        reason = f"{missing} is missing; set both or neither"
        raise invalid(given[0], options[given[0]], reason)
    app, text = (options[name] for name in names)
    if not app:
        raise must("txnAppId", app, "have at least one character")
    version = text.strip()
    if re.fullmatch("[0-9]{1,19}", version) is None or int(version) > LONG_MAX:
        raise must("txnVersion", text, f"be an integer from 0 to {LONG_MAX}")
    return app, int(version)


def query_of(app: str) -> str:
    """Return the name of the query whose batches are the versions of an application.

    Spark never gives such a name to a stream. An id that is too long, or has characters that a name
    cannot have, is replaced by its hash, under another prefix.
    """
    if _PLAIN_ID.fullmatch(app) is not None:
        return f"txn-{app}"
    return f"txn_{hashlib.sha256(app.encode()).hexdigest()[:40]}"


def check_write(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, modes: str
) -> WriteOptions:
    """Check everything that can be checked before a task runs; return the options.

    Raises
    ------
    InvalidOptionError
        If an option is invalid, or a column is unknown, missing, or of the wrong type.
    UnsupportedError
        If the write is to overwrite: a log can only be appended to.
    ForebayError
        If the path cannot hold a store that Forebay may write, or the topic name is invalid.

    Notes
    -----
    A partition log that does not exist is created here; a commit log by the first commit.
    """
    parsed = parse_write_options(options)
    if overwrite:
        message = f"a log can only be appended to: use {modes}; to start over, use another path"
        raise UnsupportedError(message)
    check_schema(schema, parsed.topic, ignore_extra=parsed.ignore_extra)
    _check_target(parsed)
    return parsed


def _check_target(options: WriteOptions) -> None:
    """Check the store and the topic; create a partition log, whose files tell tasks what it is."""
    path, engine = options.path, options.engine
    wanted = None if engine is None else _forebay.EngineKind(engine)
    found = _forebay.stage_target(path)
    if found is None and wanted is not None and wanted.in_kafka_form:
        with contextlib.suppress(StoreLockedError):
            # Another driver may be creating it at the same time.
            forebay.open(path, mode="a", engine=engine).close()
        found = wanted
    if found is not None and wanted not in (None, found):
        raise invalid("engine", engine, f"the store at {path} is a {found.name}")
    _forebay.stage_target(path, options.topic)


#: The columns of a message: those of the Kafka sink, and two more.
COLUMNS = ("value", "key", "topic", "partition", "headers", "timestamp", "tags")


def check_schema(schema: StructType, topic: str | None, *, ignore_extra: bool = False) -> None:
    """Check the columns; those that a message does not have are errors, unless `ignore_extra`.

    Raises
    ------
    InvalidOptionError
        If a column is unknown, repeated, missing, or of the wrong type.
    """
    from pyspark.sql import types

    words = (types.StringType, types.BinaryType)
    wanted: dict[str, tuple[tuple[type[DataType], ...], str]] = {
        "value": (words, "string or binary"),
        "key": (words, "string or binary"),
        "topic": ((types.StringType,), "string"),
        "partition": ((types.IntegerType,), "int"),
        "headers": ((types.ArrayType,), "array<struct<key: string, value: binary>>"),
        "timestamp": ((types.TimestampType,), "timestamp"),
        "tags": ((types.StringType,), "string"),
    }
    names = [field.name for field in schema.fields]
    for place, field in enumerate(schema.fields):
        if field.name not in COLUMNS:
            if field.name.lower() in COLUMNS:
                # A misspelt column must not be ignored: its data would be lost by mistake.
                reason = f"column names are case-sensitive: use {field.name.lower()}"
                raise invalid("columns", field.name, reason)
            if ignore_extra:
                continue
            hint = did_you_mean(field.name, COLUMNS)
            reason = (
                f"no such column of a message{hint}; the columns are {', '.join(COLUMNS)}; "
                'set ignoreExtraColumns to "true" to ignore others'
            )
            raise invalid("columns", field.name, reason)
        if field.name in names[:place]:
            raise invalid("columns", field.name, "the column occurs twice")
        kinds, word = wanted[field.name]
        found = field.dataType
        good = isinstance(found, kinds) and (field.name != "headers" or _are_headers(found))
        if not (good or (isinstance(found, types.NullType) and field.name != "value")):
            reason = f"its type is {found.simpleString()} but must be {word}"
            raise invalid("columns", field.name, reason)
    if "value" not in names:
        reason = "a column value is needed, of type string or binary"
        raise invalid("columns", ", ".join(names), reason)
    if topic is None and "topic" not in names:
        reason = "no topic is given: set the option topic, or add a column topic"
        raise invalid("columns", ", ".join(names), reason)


def _are_headers(found: DataType) -> bool:
    from pyspark.sql import types

    assert isinstance(found, types.ArrayType)
    entry = found.elementType
    if not isinstance(entry, types.StructType) or entry.fieldNames() != ["key", "value"]:
        return False
    key, value = (field.dataType for field in entry.fields)
    return isinstance(key, types.StringType) and isinstance(value, types.BinaryType)
