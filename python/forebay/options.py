"""Types of arguments.

They are for type checkers, and for annotations in programs that pass such arguments on.

Examples
--------
>>> from typing import Unpack
>>> from forebay.options import Options
>>> def open_events(**options: Unpack[Options]) -> forebay.Store:
...     return forebay.open(":memory:", **options)
>>> open_events(default_queues=2).close()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Ack",
    "AppendLock",
    "ArrowArray",
    "ArrowStream",
    "BatchFields",
    "BodyType",
    "Bound",
    "CleanupPolicy",
    "Compression",
    "ConsumerOptions",
    "Duration",
    "EngineName",
    "FileEngine",
    "Flush",
    "Headers",
    "Isolation",
    "MessageFields",
    "Mode",
    "OpenOptions",
    "Options",
    "Order",
    "Progress",
    "ScanOptions",
    "Start",
    "TimestampType",
]

Mode: TypeAlias = Literal["a", "r", "share", "x"]
"""How a store is opened."""
EngineName: TypeAlias = Literal["commitlog", "partitionlog", "memory"]
"""The engine of a store."""
FileEngine: TypeAlias = Literal["commitlog", "partitionlog"]
"""An engine that keeps a store in files."""
Flush: TypeAlias = Literal["async", "sync"]
"""When a send returns."""
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
"""Which messages of Kafka's transactions are read."""
CleanupPolicy: TypeAlias = Literal["delete", "compact", "compact,delete"]
"""What happens to old messages of a topic."""
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
"""How a partition log packs the records of a batch."""
TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
"""Which time a partition log gives to a message."""
BodyType: TypeAlias = Literal["binary", "binary_view"]
"""The Arrow type of bodies in a scan."""
AppendLock: TypeAlias = Literal["mutex", "spin"]
"""How senders wait for each other."""
Order: TypeAlias = Literal["none", "queue"]
"""In which order a group gets the messages of a queue."""
Ack: TypeAlias = Literal["auto", "manual"]
"""Whether iteration acknowledges messages."""
Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""
Bound: TypeAlias = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where a read begins or ends: ``"earliest"``, ``"latest"``, a time, or offsets by queue."""
Start: TypeAlias = (
    Literal["earliest", "latest"] | datetime | timedelta | Mapping[tuple[str, int], int]
)
"""Where a group begins: as `Bound`, or so long ago; offsets are by topic and queue."""
Progress: TypeAlias = Callable[[int, int], object]
"""Called with how much is done, and how much there is."""
Headers: TypeAlias = "Iterable[tuple[str, Buffer | None]]"
"""Names and values of a message's headers, in their order."""


class ArrowStream(Protocol):
    """Arrow data in parts, such as a table or a reader of record batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream in a capsule."""


class ArrowArray(Protocol):
    """Arrow data in one part, such as a record batch."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the schema and the data in capsules."""


class Options(TypedDict, total=False):
    """The options of `forebay.open` beside its parameters; `forebay.open` describes them."""

    commitlog_file_size: int | None
    queue_file_entries: int | None
    index_slots: int | None
    index_entries: int | None
    index: bool | None
    default_queues: int | None
    max_message_size: int | None
    checksum: bool | None
    unique_ids: bool | None
    delay_levels: str | None
    store_host: str | None
    flush_interval: Duration
    flush_least_pages: int
    flush_messages: int | None
    flush_thorough_interval: Duration
    flush_timeout: Duration
    queue_flush_interval: Duration
    transient_pool: int
    transient_pool_fail_fast: bool
    commit_interval: Duration
    commit_least_pages: int
    roll_after: Duration | None
    warm_up: bool
    warm_up_flush_pages: int
    lock_memory: bool
    guard_maps: bool
    read_ahead: bool
    append_lock: AppendLock
    busy_timeout: Duration
    retention: Duration | None
    retention_bytes: int | None
    keep_unconsumed: bool
    keep_unarchived: bool
    disk_reserve: int
    delete_when: str | None
    disk_warning_ratio: float | None
    isolation: Isolation | None
    segment_bytes: int | None
    segment_ms: int | None
    index_interval_bytes: int | None
    segment_index_bytes: int | None
    compression: Compression | None
    message_timestamp_type: TimestampType | None
    linger: Duration
    batch_bytes: int | None
    cleanup_policy: CleanupPolicy | Mapping[str, CleanupPolicy] | None
    min_cleanable_dirty_ratio: float | None
    delete_retention_ms: int | None
    min_compaction_lag_ms: int | None
    max_compaction_lag_ms: int | None
    log_cleaner_dedupe_buffer_size: int | None
    log_cleaner_io_max_bytes_per_second: int | None
    log_cleaner_backoff_ms: int | None


class OpenOptions(Options, total=False):
    """The options, and the parameters of `forebay.open` that are given by name."""

    engine: EngineName | None
    flush: Flush | None
    adopt: bool
    lock_timeout: Duration


class ScanOptions(TypedDict, total=False):
    """The parameters of `forebay.Store.scan` beside the topic."""

    columns: Sequence[str] | None
    queues: Iterable[int] | None
    start: Bound
    end: Bound
    tags: str | Iterable[str] | None
    key: str | bytes | None
    batch_rows: int
    batch_bytes: int
    body_type: BodyType
    verify: bool


class ConsumerOptions(TypedDict, total=False):
    """The parameters of `forebay.Store.consumer` beside the topics and the group."""

    start: Start
    order: Order
    tags: str | Iterable[str] | None
    ack: Ack
    visibility_timeout: Duration
    max_unsettled: int
    retry_in_place: int
    prefetch: int
    session_timeout: Duration


class MessageFields(TypedDict, total=False):
    """The parameters of `forebay.Producer.send` that are parts of a message beside its body."""

    key: str | bytes | None
    keys: Iterable[str | bytes] | None
    tags: str | bytes | None
    properties: Mapping[str, str] | None
    headers: Headers | None
    queue: int | None
    delay_level: int
    timestamp: datetime | None
    delay: Duration | None
    deliver_at: datetime | None


class BatchFields(TypedDict, total=False):
    """The parameters of `forebay.Producer.send_batch` beside the bodies and ``flush``."""

    keys: Iterable[str | bytes | Iterable[str | bytes] | None] | None
    tags: str | bytes | Iterable[str | bytes | None] | None
    properties: Mapping[str, str] | Iterable[Mapping[str, str] | None] | None
    headers: Headers | Iterable[Headers | None] | None
    queue: int | None
    atomic: bool
    timestamp: datetime | None
