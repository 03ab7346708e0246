import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Literal, Never, Protocol, Self, TypeAlias, final, overload

from typing_extensions import Buffer, CapsuleType

from forebay.archive.copying import Archived
from forebay.options import (
    Ack,
    ArrowArray,
    ArrowStream,
    BodyType,
    Bound,
    Duration,
    EngineName,
    Headers,
    Mode,
    Order,
    Progress,
    Start,
)
from forebay.store import ReadStatus

__version__: str

__all__ = [
    "BatchResult", "BatchTicket", "Block", "BlockScan", "BlockTable", "Bounds", "CommitProgress",
    "Compaction", "Consumer", "ConsumerIterator", "Contents", "Conversion", "Damage",
    "EngineKind", "Epochs",
    "Finding", "Fitted", "FoundHole",
    "GroupQueue", "IndexKeys", "LaidRange", "LaidRun", "Latency", "ManualClock", "Meanings",
    "Merged", "Message", "Notices", "Pause", "Polled", "Producer",
    "Queue", "QueueBounds", "QueueEnd", "QueueOffsets", "QueueRange", "ReadBatch", "Recovery",
    "Repair", "RepairStep", "Run",
    "Scan", "SealedFile", "SealedSegment", "SegmentSurvey", "SendResult", "Staged", "Stager",
    "Stats", "Store", "StoreLock", "Stretch", "Survey", "Tail", "TailStep", "Ticket", "Topic",
    "Verification", "WriterStats", "__version__", "block_offset_at",
    "block_schema", "bounds_below", "chain_scans", "clock_moved", "close_query", "contents_of",
    "convert_store", "discard_stages", "epochs", "fit", "holds_commit", "last_marker",
    "message_from_record",
    "offsets_between", "open_store", "publish_commit", "rebuild_index", "rebuild_lay",
    "rebuild_merge", "rebuild_ranges", "record_offsets", "resolve_commit", "scan_again",
    "scan_blocks", "sealed_files", "sealed_segments", "stage_target", "survey", "survey_segment",
    "take_commits", "values_again",
    "verify_join", "verify_parts", "verify_stretches", "wait_beyond", "wait_for_commit",
    "withdraw_commit",
    "writer_of",
]  # fmt: skip

@final
class SendResult:
    """Where a message was stored.

    Attributes
    ----------
    topic, queue, offset
        The place in the queue. A delayed message is in the topic SCHEDULE_TOPIC_XXXX if it has a
        delay level and the store is no partition log, else in rmq_sys_forebay_delay.
    position
        The position in the log; in a partition log, that of the message's batch in its segment.
    message_id
        RocketMQ's id of the message; in a partition log ``topic-queue@offset``.
    timestamp
        Store time, in milliseconds since the epoch; in a partition log the message's time.
    durable
        Whether the message was durable when the call returned.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     result = store.send("orders", b"body")
    >>> result.topic, result.offset
    ('orders', 0)
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def topic(self) -> str:
        """The topic. A delayed message is in SCHEDULE_TOPIC_XXXX if it has a delay level and the
        store is no partition log, else in rmq_sys_forebay_delay.
        """
    @property
    def queue(self) -> int:
        """The queue."""
    @property
    def offset(self) -> int:
        """The offset in the queue."""
    @property
    def position(self) -> int:
        """The position in the log; in a partition log, that of the message's batch in its
        segment.
        """
    @property
    def message_id(self) -> str:
        """RocketMQ's id of the message; in a partition log ``topic-queue@offset``."""
    @property
    def timestamp(self) -> int:
        """Store time, in milliseconds since the epoch; in a partition log the message's time."""
    @property
    def durable(self) -> bool:
        """Whether the message was durable when the call returned."""

@final
class BatchResult:
    """Where the messages of a batch were stored.

    Attributes
    ----------
    count
        Number of messages.
    ranges
        A dict from queue to the range of offsets from the batch's first message to its last. A
        batch above 4 MiB is appended in chunks; the range then includes messages that other
        senders appended to the queue in between.
    timestamp
        Store time, in milliseconds since the epoch.
    durable
        Whether all messages were durable when the call returned.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def count(self) -> int:
        """Number of messages."""
    @property
    def ranges(self) -> dict[int, range]:
        """A dict from queue to the range of offsets from the batch's first message to its last. A
        batch above 4 MiB is appended in chunks; the range then includes messages that other
        senders appended to the queue in between.
        """
    @property
    def timestamp(self) -> int:
        """Store time, in milliseconds since the epoch."""
    @property
    def durable(self) -> bool:
        """Whether all messages were durable when the call returned."""

@final
class Ticket:
    """A message that is not durable yet; returned by `Producer.send_nowait`.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     orders = store.producer("orders")
    ...     tickets = [orders.send_nowait(b"body") for _ in range(3)]
    ...     all(ticket.result(timeout=5).durable for ticket in tickets)
    True
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    def done(self) -> bool:
        """Return whether `result` would return or raise without waiting."""
    def result(self, timeout: float | timedelta | None = None) -> SendResult:
        """Wait until the message is durable, and return where it is.

        Parameters
        ----------
        timeout
            Seconds or a timedelta; None waits without a limit.

        Returns
        -------
        SendResult
            The result that `Producer.send` would return, with ``durable`` true.

        Raises
        ------
        FlushTimeoutError
            If the message is not durable in time. It is in the log, and the attribute ``result``
            says where; do not send it again. With the option ``linger`` it may still wait for
            others of its queue; then ``result`` is None.
        BusyError, DiskFullError, DiskError
            With the option ``linger``, if the message was not appended.
        StoreFailedError
            If the flush failed. The message is in the log, but its durability is unknown.
        ForkedError
            In a child process of the one that sent the message.
        """
    def _after(self, timeout: timedelta) -> SendResult:
        """The result, after an event loop has waited for `timeout`. Does not wait."""

@final
class BatchTicket:
    """A batch in the log that is not durable yet; returned by `Producer.send_batch_nowait`.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     ticket = store.producer("orders", queue=0).send_batch_nowait([b"a", b"b"])
    ...     ticket.result(timeout=5).ranges
    {0: range(0, 2)}
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    def done(self) -> bool:
        """Return whether `result` would return or raise without waiting."""
    def result(self, timeout: float | timedelta | None = None) -> BatchResult:
        """Wait until the batch is durable, and return where it is.

        Parameters
        ----------
        timeout
            Seconds or a timedelta; None waits without a limit.

        Returns
        -------
        BatchResult
            The result that `Producer.send_batch` would return, with ``durable`` true.

        Raises
        ------
        FlushTimeoutError, StoreFailedError, ForkedError
            As `Ticket.result`.
        """
    def _after(self, timeout: timedelta) -> BatchResult:
        """The result, after an event loop has waited for `timeout`. Does not wait."""

@final
class Producer:
    """Sends messages to one topic. Made by `Store.producer`; any thread may use it.

    Use a producer in a loop: it is faster than `Store.send`, which finds the topic for each
    message.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     orders = store.producer("orders", queue=0)
    ...     for number in range(3):
    ...         _ = orders.send(b"order %d" % number, key=str(number))
    ...     store.get("orders", 0, 2).body
    b'order 2'
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def topic(self) -> str:
        """The topic's name."""
    @property
    def name(self) -> str | None:
        """The name of a producer that owns its queue; else None."""
    def close(self) -> None:
        """Give up the queue that the producer owns, so that another producer may have it.

        Later sends raise `OwnershipLostError`. A producer without a queue of its own needs no
        closing, and stays usable.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...
    def send(
        self,
        body: Buffer | None,
        *,
        key: str | bytes | None = None,
        keys: Iterable[str | bytes] | None = None,
        tags: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        queue: int | None = None,
        delay_level: int = 0,
        timestamp: datetime | None = None,
        flush: bool | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Send one message.

        Parameters
        ----------
        body
            Any contiguous buffer: bytes, bytearray, memoryview, a NumPy array, an Arrow buffer.
            In a partition log also None with a key: a tombstone, which has no body.
        key, keys
            One or several keys to find the message by: text without spaces or control
            characters. In a partition log, the first may be any bytes.
        tags
            A tag, by which readers can filter.
        properties
            Names and values that you choose, as a mapping of text.
        headers
            In a partition log, a sequence of names and values, which are bytes or None. Order
            and duplicates are kept. Properties become headers too, and precede these.
        queue
            Number of the queue. The default is the producer's queue. If that has none, the first
            key selects a queue; without a key, messages go to each queue in turn.
        delay_level
            With 1 to 18 the message is delivered after RocketMQ's delay of that level: 1 s, 5 s,
            10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h. Until then it waits in the topic
            SCHEDULE_TOPIC_XXXX, in a partition log in rmq_sys_forebay_delay. 0 means no delay.
        delay
            Deliver the message after this time, seconds or a timedelta, at most 366 days. Until
            then it waits in the topic rmq_sys_forebay_delay.
        deliver_at
            Deliver the message at this time, an aware datetime at most 366 days ahead; at once
            if it has passed. Excludes ``delay`` and ``delay_level``.
        timestamp
            When the message was made, an aware datetime; by default now.
        flush
            True waits until the message is durable, False does not. None does what the store was
            opened with: ``flush="sync"`` waits, ``flush="async"`` does not.

        Returns
        -------
        SendResult
            Topic, queue, offset and position of the message.

        Raises
        ------
        MessageTooLargeError
            If the body, or all properties together, exceed the limit.
        InvalidOptionError
            If a key, tag or property has characters that the format cannot store.
        UnsupportedError
            For headers, if the store is not a partition log.
        """
    def send_nowait(
        self,
        body: Buffer | None,
        *,
        key: str | bytes | None = None,
        keys: Iterable[str | bytes] | None = None,
        tags: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        queue: int | None = None,
        delay_level: int = 0,
        timestamp: datetime | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> Ticket:
        """Send one message, and return a ticket without waiting for the disk.

        When the call returns, the message is in the log; the ticket is done when it is durable.
        Waiting tickets share one flush. The parameters are those of `send`.

        In a partition log with the option ``linger``, the message waits for others of its queue
        instead, at most for this time, and they are appended as one batch. Nobody can read it
        until then, and it is lost if the process dies. A flush, a close, and each other send to
        the queue append it first. If it cannot be appended, the ticket raises the error, and so
        does the next ``flush`` or ``close`` of the store.

        Returns
        -------
        Ticket
            ``done()`` and ``result(timeout)``.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     ticket = store.producer("orders").send_nowait(b"body")
        ...     ticket.result().durable
        True
        """
    def send_batch(
        self,
        bodies: Iterable[Buffer | None],
        *,
        keys: Iterable[str | bytes | Iterable[str | bytes] | None] | None = None,
        tags: str | bytes | Iterable[str | bytes | None] | None = None,
        properties: Mapping[str, str] | Iterable[Mapping[str, str] | None] | None = None,
        headers: Headers | Iterable[Headers | None] | None = None,
        queue: int | None = None,
        atomic: bool = False,
        timestamp: datetime | None = None,
        flush: bool | None = None,
    ) -> BatchResult:
        """Send many messages with one lock and one flush, in chunks of up to 4 MiB.

        Parameters
        ----------
        bodies
            A sequence of bodies.
        keys
            One entry per message: a key, a sequence of keys, or None.
        tags
            One tag for all messages, or a sequence with one entry per message.
        properties
            One mapping for all messages, or a sequence with one entry per message.
        headers
            One sequence of names and values for all messages, or a sequence with one such
            sequence or None per message.
        queue
            Number of the queue. The default is the producer's queue. If that has none, the first
            key of a message selects its queue; all messages without a key go to one queue, the
            next in turn.
        atomic
            Store all messages or none, even if the process crashes or the power fails; up to 64
            MiB.
        timestamp
            When the messages were made, an aware datetime; by default now.
        flush
            As for `send`.

        Returns
        -------
        BatchResult
            The number of messages, and their offsets by queue. After Ctrl-C, which raises
            `KeyboardInterrupt`, completed chunks stay sent; with ``atomic`` nothing is sent.

        Raises
        ------
        ForebayError
            If a message is refused; ``row`` is its index. Nothing of its chunk was appended, but
            all chunks before it were.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     orders = store.producer("orders", queue=0)
        ...     orders.send_batch([b"a", b"b"], keys=["1", "2"]).ranges
        {0: range(0, 2)}
        """
    def send_batch_nowait(
        self,
        bodies: Iterable[Buffer | None],
        *,
        keys: Iterable[str | bytes | Iterable[str | bytes] | None] | None = None,
        tags: str | bytes | Iterable[str | bytes | None] | None = None,
        properties: Mapping[str, str] | Iterable[Mapping[str, str] | None] | None = None,
        headers: Headers | Iterable[Headers | None] | None = None,
        queue: int | None = None,
        atomic: bool = False,
        timestamp: datetime | None = None,
    ) -> BatchTicket:
        """Send many messages, and return a ticket without waiting for the disk.

        When the call returns, the messages are in the log; the ticket is done when all are
        durable. The parameters are those of `send_batch`.

        Returns
        -------
        BatchTicket
            ``done()`` and ``result(timeout)``.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     ticket = store.producer("orders").send_batch_nowait([b"a", b"b"])
        ...     ticket.result().count
        2
        """
    def send_arrow(
        self,
        data: ArrowStream | ArrowArray,
        *,
        atomic: bool = False,
        flush: bool | None = None,
    ) -> BatchResult:
        """Send the rows of a table, a record batch, or a stream of them.

        Parameters
        ----------
        data
            Any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``. The column ``body``
            (or ``value``) is required; ``key`` (or ``keys``), ``tags``, ``properties``,
            ``headers``, ``queue`` and ``timestamp`` are optional. ``timestamp`` is a timestamp
            with a time zone, or int64 milliseconds since the epoch; ``headers`` a list of
            structs of name and bytes.
        atomic, flush
            As for `send_batch`.

        Returns
        -------
        BatchResult
            The number of messages, and their offsets by queue. After Ctrl-C, which raises
            `KeyboardInterrupt`, completed chunks stay sent; with ``atomic`` nothing is sent.

        Raises
        ------
        InvalidOptionError
            If a column is unknown, missing, or of the wrong type; nothing is sent then.
        ForebayError
            If a row is refused; ``row`` is its index, counted over all batches.

        Examples
        --------
        >>> import pyarrow
        >>> table = pyarrow.table({"body": [b"a", b"b"], "key": ["1", "2"]})
        >>> with forebay.open(":memory:") as store:
        ...     store.producer("orders").send_arrow(table).count
        2
        """
    def _at_once(self) -> Producer:
        """A producer whose `send_nowait` returns when the message is in the log, whatever
        ``linger`` is.
        """
    def _waits(self, flush: bool | None) -> timedelta | None:
        """Whether a send with this `flush` waits for the disk, and how long at most."""
    def _is_ready(self, len: int) -> bool:
        """Whether an append of a body of this length is short enough for an event loop: it may at
        most write to the page cache, as it does in a synchronous store.
        """

@final
class Message(Buffer):
    """An immutable message of the log.

    It keeps its log file mapped, and decodes its fields on access. ``memoryview(message)`` is
    the body; if the body is not compressed, this copies nothing.

    Two messages are equal if their records are equal byte for byte: the same place, times and
    content. The hash is computed from topic, queue, offset and position. A message can be
    pickled; the pickle contains its record.

    Attributes
    ----------
    topic, queue, offset, position
        Where the message is: the offset counts in its queue, the position in the log.
    size
        Length of the whole record in bytes.
    body, stored_body
        The body, decompressed, and as it is stored in the log. Each access makes a new copy.
    is_null
        Whether the body is null, as opposed to empty: a tombstone of Kafka's.
    keys, key, key_bytes
        All keys as a tuple; the first key, or None; and the bytes of the first key, which need
        not be text in a message of Kafka's.
    tags
        The tag, or None.
    properties, system_properties
        Dicts of the sender's properties, and of properties with reserved names. Neither contains
        keys, tags or the checksum.
    raw_properties
        The properties as stored.
    headers
        The sender's properties as a tuple of (name, bytes), in stored order. In a message of
        Kafka's the bytes may be None.
    flag, sys_flag, reconsume_times
        A number that the sender chose, RocketMQ's flag bits, and how often the message was
        redelivered.
    born_timestamp, store_timestamp
        When the message was made, and when it was stored, in milliseconds since the epoch.
    born_time, store_time
        The same as datetimes in UTC.
    born_host, store_host
        Addresses, such as ``"10.0.0.1:10911"``.
    message_id
        RocketMQ's id of the message, or ``topic-queue@offset`` in a partition log.
        `Store.message` accepts it.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.send("orders", b"body", key="42", properties={"region": "eu"})
    ...     message, = store.query("orders", key="42")
    >>> message.body, message.key, message.properties
    (b'body', '42', {'region': 'eu'})
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue(self) -> int:
        """The queue that the message is in."""
    @property
    def offset(self) -> int:
        """Where the message is in its queue."""
    @property
    def position(self) -> int:
        """Where the record is in the log, in bytes."""
    @property
    def size(self) -> int:
        """Length of the whole record in bytes."""
    @property
    def body(self) -> bytes:
        """The body, decompressed. Each access makes a new copy."""
    @property
    def stored_body(self) -> bytes:
        """The body as it is stored in the log. Each access makes a new copy."""
    @property
    def keys(self) -> tuple[str, ...]:
        """All keys as a tuple."""
    @property
    def key(self) -> str | None:
        """The first key, or None."""
    @property
    def key_bytes(self) -> bytes | None:
        """The bytes of the first key, which need not be text in a message of Kafka's."""
    @property
    def is_null(self) -> bool:
        """Whether the body is null, as opposed to empty: a tombstone of Kafka's."""
    @property
    def tags(self) -> str | None:
        """The tag, or None."""
    @property
    def properties(self) -> dict[str, str]:
        """A dict of the sender's properties, without keys, tags and the checksum."""
    @property
    def system_properties(self) -> dict[str, str]:
        """A dict of the properties with reserved names, without keys, tags and the checksum."""
    @property
    def raw_properties(self) -> bytes:
        """The properties as stored."""
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The sender's properties as a tuple of (name, bytes), in stored order. In a message of
        Kafka's the bytes may be None.
        """
    @property
    def flag(self) -> int:
        """A number that the sender chose."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's flag bits."""
    @property
    def born_timestamp(self) -> int:
        """When the message was made, in milliseconds since the epoch."""
    @property
    def store_timestamp(self) -> int:
        """When the message was stored, in milliseconds since the epoch."""
    @property
    def born_time(self) -> datetime:
        """When the message was made, as a datetime in UTC."""
    @property
    def store_time(self) -> datetime:
        """When the message was stored, as a datetime in UTC."""
    @property
    def born_host(self) -> str:
        """Address of the sender, such as ``"10.0.0.1:10911"``."""
    @property
    def store_host(self) -> str:
        """Address of the store, such as ``"10.0.0.1:10911"``."""
    @property
    def reconsume_times(self) -> int:
        """How often the message was redelivered."""
    @property
    def message_id(self) -> str:
        """RocketMQ's id of the message, or ``topic-queue@offset`` in a partition log.
        `Store.message` accepts it.
        """
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ReadBatch:
    """The messages of one read, and where to continue.

    Attributes
    ----------
    status
        A `ReadStatus`.
    messages
        The messages in offset order. The batch itself also has a length and can be iterated.
    next_offset
        The offset at which the next read begins.
    min_offset, max_offset
        First offset of the queue, and the next offset to be written.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.send("orders", b"a", queue=0), store.send("orders", b"b", queue=0)
    ...     batch = store.read("orders", queue=0, offset=0)
    >>> batch.status, [message.body for message in batch], batch.next_offset
    (<ReadStatus.FOUND: 'found'>, [b'a', b'b'], 2)
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def status(self) -> ReadStatus:
        """A `ReadStatus`."""
    @property
    def messages(self) -> list[Message]:
        """The messages in offset order. The batch itself also has a length and can be iterated."""
    @property
    def next_offset(self) -> int:
        """The offset at which the next read begins."""
    @property
    def min_offset(self) -> int:
        """First offset of the queue."""
    @property
    def max_offset(self) -> int:
        """The next offset to be written to the queue."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Message]: ...

@final
class Consumer:
    """A member of a group of consumers; made by `Store.consumer`.

    The queues of its topics are shared out among the consumers of a group: each queue has one
    owner at a time. A message is delivered until it is settled: with `ack`, `nack` or `reject`.

    Iterating blocks for each message. With ``ack="auto"`` taking the next message acknowledges
    the previous one of the same iterator; leaving the loop leaves the last one unsettled. Any
    thread may use a consumer; each message goes to one of them.

    Attributes
    ----------
    group
        The name of the group.
    topics
        The topics, as a tuple.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.producer("orders").send_batch([b"apples", b"pears"])
    ...     with store.consumer("orders", group="billing") as consumer:
    ...         for message in consumer.poll(max_messages=10, timeout=1.0):
    ...             print(message.body)
    ...             consumer.ack(message)
    b'apples'
    b'pears'
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def group(self) -> str:
        """The name of the group."""
    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, as a tuple."""
    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The queues that this consumer owns, as a sorted list of ``(topic, queue)``."""
    def poll(self, max_messages: int = 64, timeout: Duration | None = None) -> list[Message]:
        """Take messages, without settling them.

        Parameters
        ----------
        max_messages
            The most messages to return, at least 1. Queues are read in turn. A list of more than
            8,192 messages has at most about 64 MiB.
        timeout
            How long to wait for the first message, in seconds or as a timedelta; None waits for
            ever. Ctrl-C interrupts the wait, and the reading of many messages, which are given
            back.

        Returns
        -------
        list of Message
            Messages of one queue are in the order of their offsets. They are delivered again if
            they are not settled within ``visibility_timeout``. Empty after the timeout.

        Raises
        ------
        LogShrunkError
            If a queue ends before the offset that the group has reached.
        OwnershipLostError
            With ``mode="share"``: once, if this process has shown no sign of life for
            ``session_timeout``, so that others have got its queues. The consumer has joined its
            group again.
        StoreClosedError
            If the store or the consumer is closed.
        """
    def _try_poll(self, max_messages: int) -> Polled:
        """Take messages, without waiting."""
    def _give_back(self, messages: list[Message]) -> None:
        """Have messages delivered again at once: nobody has seen them."""
    def _try_ack(
        self, messages: Message | Iterable[Message]
    ) -> tuple[list[Message], BaseException | None]:
        """Settle the messages that can be settled without waiting for another thread or process.

        Return the others, and the error of the first one that cannot be settled.
        """
    def ack(self, messages: Message | Iterable[Message]) -> None:
        """Settle one message or several: they are handled.

        Progress moves to the smallest offset that is not settled. It is stored every 5 s, by
        `commit` and by `close`, after the messages before it are durable.

        Raises
        ------
        AlreadySettledError
            If a message was settled before. All others are settled.
        OwnershipLostError
            If a message was delivered again since or was taken back by `nack`, its queue has
            another owner, or a consumer of another group or store delivered it. All others are
            settled.
        """
    def nack(self, message: Message, delay_level: int | None = None) -> None:
        """Have a message delivered again later.

        With ``order="none"`` the message goes through the topic ``%RETRY%<group>``, after a
        delay: by default 10 s for the first retry, then 30 s, 1 min and so on up to 2 h. With
        ``order="queue"`` it is delivered again in place, before anything after it in its queue;
        later messages of the queue that are not settled are taken back, and delivered again
        after it; refusing one of these has no effect. After 16 retries, or ``retry_in_place``
        attempts, it becomes a dead letter in ``%DLQ%<group>``. It becomes one at once if its
        properties leave no room for those of a retry: a record of a commit log holds 32,767
        bytes of properties. In a partition log the topics are ``retry.<group>`` and
        ``dlq.<group>``.

        Parameters
        ----------
        message
            A message that this consumer delivered.
        delay_level
            RocketMQ's level of the delay, 1 to 18: 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30
            min, 1 h, 2 h. None: by the number of attempts. With ``order="queue"`` it has no
            effect: the pauses grow from 1 s to 30 s, since nothing after the message is
            delivered meanwhile.

        Raises
        ------
        AlreadySettledError, OwnershipLostError
            As `ack`.
        CorruptError
            If the message was damaged on disk since it was delivered. It is not copied and stays
            unsettled; its next delivery finds the damage and settles it.
        """
    def reject(self, message: Message, reason: str | None = None) -> None:
        """Make a message a dead letter: it goes to ``%DLQ%<group>`` and is not delivered again.

        In a partition log the topic is ``dlq.<group>``.

        Parameters
        ----------
        message
            A message that this consumer delivered.
        reason
            A text that the dead letter keeps in its property ``FOREBAY_REASON``: up to 1,000
            characters, fewer if its other properties leave no room.

        Raises
        ------
        AlreadySettledError, OwnershipLostError
            As `ack`.
        CorruptError
            As `nack`.
        """
    def _try_extend(self, message: Message, seconds: Duration) -> bool:
        """Keep a message for longer, unless that has to wait for another thread or process.

        Return whether it is kept.
        """
    def extend(self, message: Message, seconds: Duration) -> None:
        """Keep a message for longer before it is delivered again.

        Parameters
        ----------
        message
            A message that this consumer delivered.
        seconds
            From now on; a number or a timedelta.

        Raises
        ------
        AlreadySettledError, OwnershipLostError
            As `ack`.
        """
    @overload
    def run(
        self,
        handler: Callable[[Message], object],
        threads: int = 1,
        batch: Literal[1] = 1,
    ) -> None:
        """Handle messages with a function until the consumer or its store closes, or a signal
        comes.

        A call that returns acknowledges its messages; one that raises has them delivered again,
        as `nack` does, and the exception is logged to the logger ``forebay``.

        Parameters
        ----------
        handler
            Called with a message; with ``batch`` above 1, with a list of up to that many. It
            must have handled them when it returns: a coroutine function or a generator function
            is refused, and a call that returns an awaitable or a generator has failed.
        threads
            How many threads call it, 1 to 1,024.
        batch
            The most messages of a call.

        Notes
        -----
        Blocks. Called in the main thread it ends at SIGTERM, and at Ctrl-C with
        KeyboardInterrupt, once the calls that run have returned. If messages cannot be settled
        for a temporary reason, such as `BusyError` or `DiskFullError`, it logs that and tries
        again until it succeeds, or gives them back when it ends. Other errors end it and are
        raised.
        """
    @overload
    def run(
        self, handler: Callable[[list[Message]], object], threads: int = 1, *, batch: int
    ) -> None: ...
    @overload
    def run(self, handler: Callable[[list[Message]], object], threads: int, batch: int) -> None: ...
    def seek(self, to: Start) -> None:
        """Continue elsewhere in the queues that this consumer owns.

        Messages of these queues that it holds can no longer be settled.

        Parameters
        ----------
        to
            ``"earliest"``, ``"latest"``, an aware datetime, a timedelta ago, or
            ``{(topic, queue): offset}``, which leaves other queues where they are.

        Raises
        ------
        OwnershipLostError
            If another consumer owns a queue that is named.
        OffsetOutOfRangeError
            If a queue does not have the offset.
        """
    def lag(self) -> dict[tuple[str, int], int]:
        """Count the messages that are not settled yet, delivered or not, in each queue.

        Returns
        -------
        dict
            ``{(topic, queue): messages}`` for the queues that this consumer owns.
        """
    def commit(self) -> None:
        """Store the progress of the group. What was settled is durable on return."""
    def close(self) -> None:
        """Leave the group. Messages that are not settled are delivered to others at once.

        Stores the progress. A second call does nothing.

        Raises
        ------
        BusyError
            If another process had the table of progress locked for 5 s. The consumer is closed,
            and the store stores the progress later.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...
    def __iter__(self) -> ConsumerIterator: ...

@final
class Run:
    """The polls of `Consumer.run`, which end when it stops."""

    def __new__(cls, consumer: Consumer) -> Self: ...
    def poll(self, max_messages: int) -> list[Message]:
        """Waits for messages; returns an empty list once `stop` was called."""
    def stop(self) -> None:
        """Ends all polls, including those that wait."""

@final
class ConsumerIterator:
    """The messages of a consumer, one by one; made by iterating over a `Consumer`.

    With ``ack="auto"`` taking the next message acknowledges all that the same iterator has
    handed out before. So each thread or task should iterate by itself. If several share an
    iterator, each message goes to one of them, in no defined order, and whoever takes a message
    acknowledges also those that the others still handle.
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def _ready(self) -> Message | None:
        """Acknowledge what was handed out and return the next message that was taken ahead.

        Returns None if this has to wait for another thread or process.
        """
    def _try_poll(self) -> Pause | None:
        """Acknowledge what was handed out, and take messages ahead without waiting for any.

        If there are none, return what to wait for.
        """

@final
class Pause:
    """What an event loop waits for if there is no message: a position of the log and a number of
    changes, for ``limit`` at most.
    """

    @property
    def position(self) -> int: ...
    @property
    def changes(self) -> int: ...
    @property
    def limit(self) -> timedelta | None: ...

@final
class Polled:
    """Messages that a consumer took without waiting, and what to wait for if there are none."""

    @property
    def messages(self) -> list[Message]: ...
    @property
    def pause(self) -> Pause: ...

@final
class GroupQueue:
    """How far a group has consumed one queue.

    Unsettled messages, retries, owner and times are known for groups of this process, and of
    processes that share the store; for others they are 0 or None.

    Attributes
    ----------
    group, topic, queue
        Which group, and which queue.
    committed
        The smallest offset that is not settled.
    max_offset
        The next offset to be written to the queue.
    lag, lag_bytes
        Messages from ``committed`` to the end of the queue, and the bytes of their records.
    lag_seconds
        How long ago the first of them was stored; 0 if there is none.
    unsettled
        Messages that are delivered and not settled.
    retries
        Messages that were refused, or whose delivery was not settled, since the store was
        opened.
    owner
        Number of the consumer that owns the queue, or None.
    owner_pid
        Process id of the owner if the store is shared, or None.
    owned_timestamp
        When the owner got the queue, in milliseconds since the epoch, or None.
    progress_timestamp
        When ``committed`` last moved, or None.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def group(self) -> str:
        """The group."""
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue(self) -> int:
        """The queue."""
    @property
    def committed(self) -> int:
        """The smallest offset that is not settled."""
    @property
    def max_offset(self) -> int:
        """The next offset to be written to the queue."""
    @property
    def lag(self) -> int:
        """Messages from ``committed`` to the end of the queue."""
    @property
    def lag_bytes(self) -> int:
        """Bytes of the messages from ``committed`` to the end of the queue."""
    @property
    def lag_seconds(self) -> float:
        """How long ago the first of them was stored; 0 if there is none."""
    @property
    def unsettled(self) -> int:
        """Messages that are delivered and not settled."""
    @property
    def retries(self) -> int:
        """Messages that were refused, or whose delivery was not settled, since the store was
        opened.
        """
    @property
    def owner(self) -> int | None:
        """Number of the consumer that owns the queue, or None."""
    @property
    def owner_pid(self) -> int | None:
        """Process id of the owner if the store is shared, or None."""
    @property
    def owned_timestamp(self) -> int | None:
        """When the owner got the queue, in milliseconds since the epoch, or None."""
    @property
    def progress_timestamp(self) -> int | None:
        """When ``committed`` last moved, or None."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Tail:
    """Messages of all queues of a topic in the order in which they were stored; made by
    `Store.tail`.

    Any thread may take the next message; each message goes to one of them. Iteration ends when
    the tail or its store is closed, even in waiting threads. It also ends if no message comes
    for ``timeout``; then the tail can be iterated again.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.send("orders", b"body")
    ...     with store.tail("orders", start="earliest", timeout=0.1) as tail:
    ...         [message.body for message in tail]
    [b'body']
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Message: ...
    def close(self) -> None:
        """End the iteration, even in threads that wait for a message. A second call does
        nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_raised: object) -> None: ...
    def _ready(self) -> Message | None:
        """The next message, if it can be had without reading or waiting."""
    def _try_next(self) -> TailStep:
        """The next message, without waiting."""

@final
class TailStep:
    """The result of a tail without waiting: a message, or None; whether the tail is over; and the
    position above which new messages are.
    """

    @property
    def message(self) -> Message | None: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def position(self) -> int: ...

@final
class Notices:
    """The waits of one event loop in one store."""

    def __new__(cls, store: Store) -> Self: ...
    def fileno(self) -> int:
        """The descriptor that is readable while `take` has something to return."""
    def take(self) -> list[int]:
        """The tokens of the waits that ended since the last call."""
    def when_done(self, ticket: object, token: int) -> bool:
        """Post `token` when a ticket is done. Returns false if it is done already."""
    def when_readable(self, position: int, changes: int | None, token: int) -> None:
        """Post `token` when the log is readable above `position`, consumers may have got
        messages since `changes` was read, or the store closes.
        """
    def forget(self, token: int) -> None:
        """Do not post a token of `when_readable` any more."""
    def end(self) -> None:
        """End the thread that watches the store."""

@final
class ManualClock:
    """A clock that changes only when it is moved."""

    def __new__(cls, now_ms: int) -> Self: ...
    @property
    def now_ms(self) -> int:
        """The time in ms since the epoch."""
    def advance(self, by_ms: int) -> None:
        """Move the clock forward."""

def clock_moved(store: Store) -> None:
    """Deliver the messages of a store that became due when its clock was moved."""

@final
class Scan:
    """A scan of messages as Arrow record batches; made by `Store.scan`.

    Each ``__arrow_c_stream__`` call reads the current state of the store and returns a new
    stream. The stream does not depend on the store: its batches stay valid after the store is
    closed, and after retention has removed the files. Ctrl-C ends a stream that the main thread
    reads: its reader reports an error, and ``KeyboardInterrupt`` follows. A scan can be pickled
    if its store was opened for reading.

    Attributes
    ----------
    store
        The store.
    columns
        Names of the columns.
    damage
        A list of `Damage`: rows that the streams of this scan skipped because their compressed
        bodies are damaged. Other damage is in `Store.damage`.

    Examples
    --------
    >>> import polars
    >>> with forebay.open(":memory:") as store:
    ...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b"])
    ...     frame = polars.DataFrame(store.scan("orders", columns=["offset", "body"]))
    >>> frame["body"].to_list()
    [b'a', b'b']
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def store(self) -> Store:
        """The store."""
    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
    @property
    def damage(self) -> list[Damage]:
        """A list of `Damage`: rows that the streams of this scan skipped because their compressed
        bodies are damaged. Other damage is in `Store.damage`.
        """
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType:
        """Export a new stream. A requested schema is ignored, as the Arrow interface allows."""
    def __arrow_c_schema__(self) -> CapsuleType:
        """Export the schema of the batches."""

@final
class Topic:
    """A topic of an open store. Each access to an attribute reads the current state of the store.

    A topic can be pickled and copied. The copy holds the values of that moment, and does not
    refer to the store.

    Attributes
    ----------
    name
        Name of the topic.
    queues
        A list of `Queue`, sorted by number.
    write_queues, read_queues
        Number of queues for senders, and for consumers.
    readable, writable
        Whether the topic's permissions allow consumers to read it, and senders to write it.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     topic = store.create_topic("orders", queues=2)
    ...     _ = store.send("orders", b"body", queue=1)
    ...     [queue.max_offset for queue in topic.queues]
    [0, 1]
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def name(self) -> str:
        """Name of the topic."""
    @property
    def queues(self) -> list[Queue]:
        """A list of `Queue`, sorted by number."""
    @property
    def write_queues(self) -> int:
        """Number of queues for senders."""
    @property
    def read_queues(self) -> int:
        """Number of queues for consumers."""
    @property
    def readable(self) -> bool:
        """Whether the topic's permissions allow consumers to read it."""
    @property
    def writable(self) -> bool:
        """Whether the topic's permissions allow senders to write it."""
    def _repr_html_(self) -> str:
        """Return what a notebook shows."""

@final
class Queue:
    """The state of a queue at the moment it was read.

    Attributes
    ----------
    id
        Number of the queue.
    min_offset, max_offset
        First offset, and the next offset to be written.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def id(self) -> int:
        """Number of the queue."""
    @property
    def min_offset(self) -> int:
        """First offset of the queue."""
    @property
    def max_offset(self) -> int:
        """The next offset to be written."""

@final
class Recovery:
    """What opening the store found and did.

    Attributes
    ----------
    clean
        Whether the store had been closed properly.
    walked_from, end
        Positions in the log: where its check began, and where the log ends.
    truncated_bytes
        Bytes after the end. Opening erases them; if the store is read-only, it ignores them.
    records_checked, queue_entries_rebuilt, index_entries_rebuilt
        Number of each.
    stale_checksums
        Copied records with the checksum of their original, as brokers write them.
    elapsed
        Duration of the opening in seconds.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def clean(self) -> bool:
        """Whether the store had been closed properly."""
    @property
    def walked_from(self) -> int:
        """Position in the log where its check began."""
    @property
    def end(self) -> int:
        """Position where the log ends."""
    @property
    def truncated_bytes(self) -> int:
        """Bytes after the end. Opening erases them; if the store is read-only, it ignores them."""
    @property
    def records_checked(self) -> int:
        """Number of records that were checked."""
    @property
    def queue_entries_rebuilt(self) -> int:
        """Number of queue entries that were rebuilt."""
    @property
    def index_entries_rebuilt(self) -> int:
        """Number of index entries that were rebuilt."""
    @property
    def stale_checksums(self) -> int:
        """Copied records with the checksum of their original, as brokers write them."""
    @property
    def elapsed(self) -> float:
        """Duration of the opening in seconds."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Damage:
    """A damaged region of the store, and the messages lost with it.

    Attributes
    ----------
    path
        The file.
    position
        First damaged byte: a position in the log if this is a log file, else a byte of the file.
    length
        Number of unreadable bytes.
    reason
        What is wrong.
    lost
        Messages known to be lost, as (topic, queue, offset).
    kind
        What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table.
        If no file is damaged: retention or clock.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def path(self) -> str:
        """The file."""
    @property
    def position(self) -> int:
        """First damaged byte: a position in the log if this is a log file, else a byte of the
        file.
        """
    @property
    def length(self) -> int:
        """Number of unreadable bytes."""
    @property
    def reason(self) -> str:
        """What is wrong."""
    @property
    def lost(self) -> list[tuple[str, int, int]]:
        """Messages known to be lost, as (topic, queue, offset)."""
    @property
    def kind(self) -> str:
        """What is damaged: log, queue, index, topics, checkpoint, options, table or foreign table.
        If no file is damaged: retention or clock.
        """
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Latency:
    """A histogram of durations. Four buckets cover each power of two.

    Attributes
    ----------
    count
        Number of durations.
    mean, p50, p99, p999, max
        In seconds; 0 if nothing was counted. Percentiles are the upper ends of their buckets, so
        they may be too long by up to a quarter.
    buckets
        The non-empty buckets, as (exclusive upper end in seconds, number of durations).
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def count(self) -> int:
        """Number of durations."""
    @property
    def mean(self) -> float:
        """Mean duration in seconds; 0 if nothing was counted."""
    @property
    def p50(self) -> float:
        """Median in seconds, or 0 if nothing was counted. It is the upper end of a bucket, so it
        may be up to a quarter too long.
        """
    @property
    def p99(self) -> float:
        """The duration that 99% do not exceed, with the rules of ``p50``."""
    @property
    def p999(self) -> float:
        """The duration that 99.9% do not exceed, with the rules of ``p50``."""
    @property
    def max(self) -> float:
        """The longest duration in seconds; 0 if nothing was counted."""
    @property
    def buckets(self) -> list[tuple[float, int]]:
        """The non-empty buckets, as (exclusive upper end in seconds, number of durations)."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class WriterStats:
    """Measurements that the live writer of a store publishes for other processes.

    They are published about once a second, if they have changed. In a store that several
    processes write, they are those of the process that runs the services for all of them.

    Attributes
    ----------
    pid
        Its process id.
    age
        Seconds since it last published a change.
    messages_sent, bytes_sent
        Messages and bytes that it has appended.
    recent_messages_per_second, recent_bytes_per_second
        Rates over about the last ten seconds.
    put_latency, slow_puts
        Duration of puts as a `Latency` without buckets, and the number of puts above 500 ms.
    flushes, flush_time, longest_flush
        Number of syncs of the log, their total time, and the longest, in seconds.
    flush_wait
        How long senders and tickets waited for durability, as a `Latency` without buckets.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def pid(self) -> int:
        """Its process id."""
    @property
    def age(self) -> float:
        """Seconds since it last published a change."""
    @property
    def messages_sent(self) -> int:
        """Messages that it has appended."""
    @property
    def bytes_sent(self) -> int:
        """Bytes that it has appended."""
    @property
    def recent_messages_per_second(self) -> float:
        """Rate of messages over about the last ten seconds."""
    @property
    def recent_bytes_per_second(self) -> float:
        """Rate of bytes over about the last ten seconds."""
    @property
    def put_latency(self) -> Latency:
        """Duration of puts, as a `Latency` without buckets."""
    @property
    def slow_puts(self) -> int:
        """Number of puts above 500 ms."""
    @property
    def flushes(self) -> int:
        """Number of syncs of the log."""
    @property
    def flush_time(self) -> float:
        """Total time of the syncs of the log, in seconds."""
    @property
    def longest_flush(self) -> float:
        """The longest sync of the log, in seconds."""
    @property
    def flush_wait(self) -> Latency:
        """How long senders and tickets waited for durability, as a `Latency` without buckets."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Stats:
    """Counters and times of a store since it was opened.

    A put is the append of one message, or of one chunk of a batch. Its time covers encoding,
    waiting for the append lock, and appending; `flush_wait` counts the wait for the disk. The
    first 1,024 single messages are timed, and then one in 64, chosen at random, and every one
    that takes longer than a few milliseconds. So counts and sums are estimates, but rare long
    puts are counted exactly.

    Attributes
    ----------
    messages_sent, bytes_sent, sends_failed, busy
        Messages and bytes appended, failed appends, and how many of these failed because the log
        was busy.
    messages_read
        Messages that reads, queries and tails returned; those of scans are not counted.
    messages_delivered, messages_delivered_again
        Messages that consumers got, and how many of these had been delivered before and not
        settled.
    messages_per_second, bytes_per_second
        Rates since the store was opened.
    recent_messages_per_second, recent_bytes_per_second
        Rates over about the last ten seconds.
    put_latency, slow_puts
        Duration of puts as a `Latency`, and the number of puts above 500 ms. Each of these is
        logged as a warning to the logger ``forebay``.
    encode_time, append_time
        Seconds that senders spent encoding; seconds of waiting for the append lock and
        appending.
    append_held
        Seconds since the current append began; 0 if there is none.
    flushes, flush_time, longest_flush
        Number of syncs of the log, their total time, and the longest, in seconds. Each sync
        above 500 ms is logged as a warning to the logger ``forebay``.
    flush_wait
        How long senders and tickets waited for durability, as a `Latency`.
    published, dispatched, durable
        Positions up to which readers see the log, queues and index are built, and the log is
        durable.
    flush_behind, dispatch_behind
        Bytes of the log that are not durable yet, and bytes not yet entered into queues and
        index.
    min_position
        First position in the log.
    log_bytes, disk_free
        Total length of the log files (of a partition log, of the batches in them); free bytes of
        the file system, or None if that is unknown.
    recovered_records, truncated_bytes
        Records that opening checked, and bytes after the end that it erased.
    damaged
        Number of known damaged regions.
    stale_checksums
        Number of copied records found with the checksum of their original.
    retired_bytes_mapped
        Bytes of log files that retention has deleted but that are still mapped. The disk space
        is freed when the last message, scan or buffer that uses the file is dropped.
    writer
        Measurements published by the process that writes the store, as `WriterStats`; None if
        this process writes it, no process does, or nothing was published yet.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def messages_sent(self) -> int:
        """Messages appended."""
    @property
    def bytes_sent(self) -> int:
        """Bytes appended."""
    @property
    def sends_failed(self) -> int:
        """Appends that failed."""
    @property
    def busy(self) -> int:
        """Failed appends because the log was busy."""
    @property
    def messages_read(self) -> int:
        """Messages that reads, queries and tails returned; those of scans are not counted."""
    @property
    def messages_delivered(self) -> int:
        """Messages that consumers got."""
    @property
    def messages_delivered_again(self) -> int:
        """Messages that consumers got, and that had been delivered before and not settled."""
    @property
    def messages_per_second(self) -> float:
        """Rate of messages since the store was opened."""
    @property
    def bytes_per_second(self) -> float:
        """Rate of bytes since the store was opened."""
    @property
    def recent_messages_per_second(self) -> float:
        """Rate of messages over about the last ten seconds."""
    @property
    def recent_bytes_per_second(self) -> float:
        """Rate of bytes over about the last ten seconds."""
    @property
    def put_latency(self) -> Latency:
        """Duration of puts, as a `Latency`."""
    @property
    def slow_puts(self) -> int:
        """Number of puts above 500 ms. Each of these is logged as a warning to the logger
        ``forebay``.
        """
    @property
    def encode_time(self) -> float:
        """Seconds that senders spent encoding."""
    @property
    def append_time(self) -> float:
        """Seconds of waiting for the append lock and appending."""
    @property
    def append_held(self) -> float:
        """Seconds since the current append began; 0 if there is none."""
    @property
    def flushes(self) -> int:
        """Number of syncs of the log."""
    @property
    def flush_time(self) -> float:
        """Total time of the syncs of the log, in seconds."""
    @property
    def longest_flush(self) -> float:
        """The longest sync of the log, in seconds. Each above 500 ms is logged as a warning to
        the logger ``forebay``.
        """
    @property
    def flush_wait(self) -> Latency:
        """How long senders and tickets waited for durability, as a `Latency`."""
    @property
    def published(self) -> int:
        """Position up to which readers see the log."""
    @property
    def dispatched(self) -> int:
        """Position up to which queues and index are built."""
    @property
    def durable(self) -> int:
        """Position up to which the log is durable."""
    @property
    def flush_behind(self) -> int:
        """Bytes of the log that are not durable yet."""
    @property
    def dispatch_behind(self) -> int:
        """Bytes of the log that are not yet entered into queues and index."""
    @property
    def min_position(self) -> int:
        """First position in the log."""
    @property
    def log_bytes(self) -> int:
        """Total length of the log files (of a partition log, of the batches in them)."""
    @property
    def disk_free(self) -> int | None:
        """Free bytes of the file system, or None if that is unknown."""
    @property
    def recovered_records(self) -> int:
        """Records that opening checked."""
    @property
    def truncated_bytes(self) -> int:
        """Bytes after the end that opening erased."""
    @property
    def damaged(self) -> int:
        """Number of known damaged regions."""
    @property
    def stale_checksums(self) -> int:
        """Number of copied records found with the checksum of their original."""
    @property
    def retired_bytes_mapped(self) -> int:
        """Bytes of log files that retention has deleted but that are still mapped. The disk
        space is freed when the last message, scan or buffer that uses the file is dropped.
        """
    @property
    def writer(self) -> WriterStats | None:
        """Measurements published by the process that writes the store, as `WriterStats`; None if
        this process writes it, no process does, or nothing was published yet.
        """
    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Verification:
    """The result of a verification.

    Attributes
    ----------
    ok
        Whether nothing is damaged.
    records, queue_entries, index_entries
        Number of intact records and entries.
    stale_checksums
        Copied records with the checksum of their original, as brokers write them.
    damage
        A list of all `Damage`.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
    @property
    def records(self) -> int:
        """Number of intact records."""
    @property
    def queue_entries(self) -> int:
        """Number of intact queue entries."""
    @property
    def index_entries(self) -> int:
        """Number of intact index entries."""
    @property
    def stale_checksums(self) -> int:
        """Copied records with the checksum of their original, as brokers write them."""
    @property
    def damage(self) -> list[Damage]:
        """A list of all `Damage`."""

@final
class Compaction:
    """The result of a compaction.

    Attributes
    ----------
    partitions
        Number of queues that were compacted.
    bytes_read, bytes_written
        Bytes of the segments that were replaced, and of those that replace them, in all passes.
    messages_read, messages_written
        Number of messages in these.
    complete
        Whether nothing is left that could be dropped.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def partitions(self) -> int:
        """Number of queues that were compacted."""
    @property
    def bytes_read(self) -> int:
        """Bytes of the segments that were replaced, in all passes."""
    @property
    def bytes_written(self) -> int:
        """Bytes of the segments that replace them, in all passes."""
    @property
    def messages_read(self) -> int:
        """Messages of the segments that were replaced."""
    @property
    def messages_written(self) -> int:
        """Messages of the segments that replace them."""
    @property
    def complete(self) -> bool:
        """Whether nothing is left that could be dropped."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class RepairStep:
    """What a repair did in one region.

    Attributes
    ----------
    path
        The file.
    position, length
        First byte, and number of bytes. The first is a position in the log if this is a log
        file, else a byte of the file.
    what
        What was done.
    saved
        File with the previous bytes; None if they were zeros, or can be rebuilt from the log.
    lost
        Messages known to be lost, as (topic, queue, offset).
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def path(self) -> str:
        """The file."""
    @property
    def position(self) -> int:
        """First byte: a position in the log if this is a log file, else a byte of the file."""
    @property
    def length(self) -> int:
        """Number of bytes."""
    @property
    def what(self) -> str:
        """What was done."""
    @property
    def saved(self) -> str | None:
        """File with the previous bytes; None if they were zeros, or can be rebuilt from the log."""
    @property
    def lost(self) -> list[tuple[str, int, int]]:
        """Messages known to be lost, as (topic, queue, offset)."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Repair:
    """What a repair did, and what it could not repair.

    Attributes
    ----------
    ok
        Whether all damage is repaired.
    steps
        A list of `RepairStep` in order; empty if nothing was damaged.
    left
        A list of all `Damage` that remains.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def ok(self) -> bool:
        """Whether all damage is repaired."""
    @property
    def steps(self) -> list[RepairStep]:
        """A list of `RepairStep` in order; empty if nothing was damaged."""
    @property
    def left(self) -> list[Damage]:
        """A list of all `Damage` that remains."""

@final
class Store:
    """An open store; made by `forebay.open`. Any thread may use it.

    Close it, or use it in a ``with`` statement: closing makes everything durable and reports
    errors. When the interpreter exits, it closes all stores that are still open. A store that
    was opened for reading can be pickled, as its path and options; others cannot.

    Attributes
    ----------
    path, engine, mode
        The path as passed to `forebay.open`; ``"commitlog"``, ``"partitionlog"`` or
        ``"memory"``; and the mode as passed to `open`.
    recovery
        What opening the store found and did, as a `Recovery`.
    damage
        A list of all `Damage` found so far. Each one is also logged once, as a warning to the
        logger ``forebay``.
    topics
        A dict from name to `Topic`, including system topics.
    durable_position
        Position up to which the log is durable.
    closed
        Whether the store was closed.

    Examples
    --------
    >>> with forebay.open(":memory:") as store:
    ...     result = store.send("orders", b"body", key="42")
    ...     store.get("orders", result.queue, result.offset).body
    b'body'
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def path(self) -> str:
        """The path as passed to `forebay.open`."""
    @property
    def engine(self) -> EngineName:
        """``"commitlog"``, ``"partitionlog"`` or ``"memory"``."""
    @property
    def _meanings(self) -> Meanings: ...
    @property
    def mode(self) -> Mode:
        """The mode as passed to `open`."""
    @property
    def recovery(self) -> Recovery:
        """What opening the store found and did, as a `Recovery`."""
    @property
    def damage(self) -> list[Damage]:
        """A list of all `Damage` found so far. Each one is also logged once, as a warning to the
        logger ``forebay``.
        """
    @property
    def topics(self) -> dict[str, Topic]:
        """A dict from name to `Topic`, including system topics."""
    @property
    def durable_position(self) -> int:
        """Position up to which the log is durable."""
    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
    def send(
        self,
        topic: str,
        body: Buffer | None,
        *,
        key: str | bytes | None = None,
        keys: Iterable[str | bytes] | None = None,
        tags: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        headers: Headers | None = None,
        queue: int | None = None,
        delay_level: int = 0,
        timestamp: datetime | None = None,
        flush: bool | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Send one message to a topic; the topic is created if it does not exist.

        Parameters
        ----------
        topic
            Name of the topic.
        body
            Any contiguous buffer, such as bytes.

        Returns
        -------
        SendResult
            Topic, queue, offset and position of the message.

        Raises
        ------
        InvalidTopicError
            If the name is empty, is too long, or has characters outside ``[%|a-zA-Z0-9_-]``.

        See Also
        --------
        Producer.send : Documents the other parameters; faster in a loop.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     store.send("orders", b"body", key="42", tags="paid").offset
        0
        """
    def producer(
        self,
        topic: str,
        queue: int | Literal["own"] | None = None,
        *,
        name: str | None = None,
    ) -> Producer:
        """Return a producer for a topic, which sends faster than `send` in a loop.

        Parameters
        ----------
        topic
            Name of the topic; it is created if it does not exist.
        queue
            Number of the queue for messages that do not name one; or ``"own"`` for a queue that
            no other producer with ``queue="own"`` sends to. It stays the same for the same
            `name`, even after a restart. If several producers use a name, the newest one owns
            the queue.
        name
            The name of a producer that owns its queue.

        Raises
        ------
        InvalidOptionError
            With ``queue="own"``, if each queue has an owner.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     store.producer("orders", queue=3).send(b"body").queue
        3
        """
    def _produces_at_once(
        self, topic: str, queue: int | Literal["own"] | None, name: str | None
    ) -> bool:
        """Whether `producer`, with these arguments, need not wait for other processes: the topic
        exists, and the producer is to own no queue. Raises what `producer` raises for arguments.
        """
    def create_topic(self, topic: str, queues: int | None = None) -> Topic:
        """Create a topic, or return the existing one; durable on return.

        Parameters
        ----------
        topic
            Name of the topic.
        queues
            Number of queues, 1 to 65,536. An existing topic with fewer queues gets more. By
            default an existing topic is not changed, and a new one gets the store's
            ``default_queues``.

        Returns
        -------
        Topic
            The topic.

        Raises
        ------
        InvalidOptionError
            If the topic has more queues than ``queues``: queues are never removed.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     len(store.create_topic("orders", queues=4).queues)
        4
        """
    def flush(self) -> int:
        """Make everything that was sent durable.

        Returns
        -------
        int
            The position up to which the log is durable.

        Raises
        ------
        StoreFailedError
            If the sync failed. The messages are in the log, but their durability is unknown.
        """
    def roll(self) -> int | None:
        """Seal the current log file, so that it can be archived, and removed by retention.

        The log is durable on return. The rest of the file stays unused, and the file keeps its
        length. The next message goes to a new file. In a partition log, the last segment of each
        queue is cut to its contents, and compaction can take it too.

        Returns
        -------
        int or None
            The position where the next file begins; in a partition log,
            `durable_position`. None if nothing was sent since the last file was sealed, or if
            the store is in memory and has no files.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     with forebay.open(path, commitlog_file_size=1 << 20) as store:
        ...         _ = store.send("orders", b"body")
        ...         store.roll(), store.roll()
        (1048576, None)
        """
    def get(self, topic: str, queue: int, offset: int) -> Message:
        """Return the message at an offset of a queue.

        Parameters
        ----------
        topic
            Name of the topic.
        queue
            Number of the queue.
        offset
            Offset of the message in the queue.

        Raises
        ------
        OffsetOutOfRangeError
            If the queue does not have the offset; ``min_offset`` and ``max_offset`` are its
            bounds.
        UnknownTopicError
            If the topic does not exist, or has no such queue.
        CorruptError
            If the message is lost to damage.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.send("orders", b"body", queue=0)
        ...     store.get("orders", queue=0, offset=0).body
        b'body'
        """
    def read(
        self,
        topic: str,
        queue: int,
        offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        tags: str | Iterable[str] | None = None,
    ) -> ReadBatch:
        """Read messages of a queue.

        Parameters
        ----------
        topic
            Name of the topic.
        queue
            Number of the queue.
        offset
            Offset to begin at.
        max_messages
            Maximum number of messages to return.
        max_bytes
            Maximum total size of the records; the first message is returned whatever its size.
            Of a partition log, whose records are copied, at most about 64 MiB are returned.
        tags
            Return only messages with this tag, or with one of several: ``"a"``, ``"a || b"`` or
            ``["a", "b"]``.

        Returns
        -------
        ReadBatch
            ``status`` says what was found, ``next_offset`` where to continue.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"])
        ...     batch = store.read("orders", queue=0, offset=1)
        >>> [message.body for message in batch]
        [b'b', b'c']
        """
    def message(self, position: int | str, /) -> Message:
        """Return the message at a position in the log, or the one with a message id.

        Parameters
        ----------
        position
            A position, or an id from `Message.message_id`.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     result = store.send("orders", b"body")
        ...     store.message(result.message_id) == store.message(result.position)
        True
        """
    def query(
        self,
        topic: str,
        key: str | bytes,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        max_messages: int = 32,
    ) -> list[Message]:
        """Return the messages of a topic that have exactly this key, newest first.

        Parameters
        ----------
        topic
            Topic to search.
        key
            Key to find.
        begin, end
            Return only messages stored from ``begin`` to ``end``, both inclusive: aware
            datetimes or integer milliseconds since the epoch.
        max_messages
            Maximum number of messages to return.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.send("orders", b"a", key="42"), store.send("orders", b"b", key="42")
        ...     [message.body for message in store.query("orders", key="42")]
        [b'b', b'a']
        """
    def offset_at(self, topic: str, queue: int, time: datetime | int) -> int:
        """Return the offset of a queue's first message stored at or after a time.

        Parameters
        ----------
        topic
            Name of the topic.
        queue
            Number of the queue.
        time
            An aware datetime, or integer milliseconds since the epoch. A time before the first
            message gives the first offset. A time after the last gives the next offset to be
            written.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     result = store.send("orders", b"body", queue=0)
        ...     store.offset_at("orders", queue=0, time=result.timestamp + 1)
        1
        """
    def tail(
        self,
        topic: str,
        start: Bound = "latest",
        follow: bool = True,
        *,
        timeout: Duration | None = None,
    ) -> Tail:
        """Iterate over the messages of all queues of a topic, in the order they were stored.

        Parameters
        ----------
        topic
            Name of the topic.
        start
            Where to begin: ``"earliest"``, ``"latest"``, an aware datetime, or ``{queue:
            offset}``; queues that are not named begin at their first message.
        follow
            Whether to wait for new messages. Otherwise the iterator ends at the end that the log
            has when the iterator is created.
        timeout
            Seconds or a timedelta: the iteration ends if no message comes for this long. None
            waits for ever.

        Returns
        -------
        Tail
            An iterator. While it blocks, Ctrl-C interrupts it. It ends when it is closed, which
            the end of its ``with`` statement does, and when the store is closed.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.producer("orders").send_batch([b"a", b"b"])
        ...     for message in store.tail("orders", start="earliest", follow=False):
        ...         print(message.body)
        b'a'
        b'b'
        """
    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        start: Start = "earliest",
        order: Order = "none",
        tags: str | Iterable[str] | None = None,
        ack: Ack = "auto",
        visibility_timeout: Duration = 900,
        max_unsettled: int = 2000,
        retry_in_place: int = 16,
        prefetch: int = 64,
        session_timeout: Duration = 10,
    ) -> Consumer:
        """Join a group of consumers.

        Parameters
        ----------
        topics
            A topic or a sequence of topics; those that do not exist are created.
        group
            Name of the group. Its consumers share the queues of the topics.
        start
            Where a group begins that has no progress in a topic: ``"earliest"`` (default:
            nothing is skipped), ``"latest"``, an aware datetime, a timedelta ago, or ``{(topic,
            queue): offset}``. Stored progress takes precedence.
        order
            ``"none"``: a message that fails goes to the group's retry topic, and later messages
            go on. ``"queue"``: it is tried again before anything after it in its queue is
            delivered.
        tags
            Deliver only messages with this tag, or with one of several (``"a || b"``). Others
            count as settled for the group: its consumers that read a topic at the same time must
            have the same tags and order.
        ack
            ``"auto"``: iterating acknowledges each message when the next one is taken.
            ``"manual"``: only `Consumer.ack` acknowledges messages.
        visibility_timeout
            A message that is not settled within this time is delivered again; seconds or a
            timedelta, at least 1 ms, 15 minutes by default.
        max_unsettled
            How many offsets of a queue may be delivered ahead of the smallest one that is not
            settled; 2,000 by default.
        retry_in_place
            With ``order="queue"``: attempts at a message before it becomes a dead letter; 16 by
            default.
        prefetch
            Messages that an iterator takes at once; 64 by default.
        session_timeout
            With ``mode="share"``: how long this process may show no sign of life before other
            processes get its queues; seconds or a timedelta, 10 s by default, at least 1 s. The
            queues of a dead process go to others at once.

        Returns
        -------
        Consumer
            Use it in a ``with`` statement: closing it gives back messages that are not settled.

        Raises
        ------
        ReadOnlyError
            If the store is not open for writing.
        InvalidOptionError
            If ``config/subscriptionGroup.json`` does not allow the group to consume; if another
            consumer of the group reads a topic with other `tags` or another `order`.
        CorruptError
            If ``config/consumerOffset.json`` or ``config/subscriptionGroup.json``, and its
            backup, cannot be read.
        """
    @property
    def groups(self) -> dict[str, list[GroupQueue]]:
        """How far each group has consumed, as a dict from its name to a list of `GroupQueue`.

        Includes the groups of other processes and of a broker, by
        ``config/consumerOffset.json``; in a partition log by ``forebay.consumerOffset.json``.
        Reads 20 bytes of the queue for each message that is not consumed.
        """
    def reset_offsets(self, group: str, topic: str, to: Bound) -> None:
        """Set how far a group has consumed a topic; durable on return.

        Consumers of the group continue there. Messages that they hold can no longer be settled.

        Parameters
        ----------
        group
            Name of the group.
        topic
            Name of the topic.
        to
            ``"earliest"``, ``"latest"``, an aware datetime, or ``{queue: offset}``, which leaves
            other queues where they are.

        Raises
        ------
        UnknownTopicError
            If there is no such topic or queue.
        OffsetOutOfRangeError
            If a queue does not have the offset.
        """
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        queues: Iterable[int] | None = None,
        start: Bound = "earliest",
        end: Bound = "latest",
        tags: str | Iterable[str] | None = None,
        key: str | bytes | None = None,
        batch_rows: int = 65536,
        batch_bytes: int = 16777216,
        body_type: BodyType = "binary",
        verify: bool = True,
    ) -> Scan:
        """Describe a scan of messages as Arrow record batches.

        Parameters
        ----------
        topic
            A topic, a sequence of topics, or None for all. Rows are ordered by topic, queue and
            offset; with None they come in log order.
        columns
            Names of the columns, in order. A column that is not named costs nothing.
        queues
            Numbers of the queues; by default all.
        start
            Where to begin: ``"earliest"``, ``"latest"``, an aware datetime, or
            ``{queue: offset}``. ``"latest"`` is the end of each queue when a stream begins.
        end
            Where to stop, exclusive, in the forms of ``start``.
        tags
            Return only messages with one of these tags.
        key
            Return only messages with this key.
        batch_rows
            Maximum number of rows of a batch.
        batch_bytes
            Maximum total size of the bodies of a batch.
        body_type
            ``"binary"`` gathers the bodies of a batch into one buffer. ``"binary_view"`` points
            into the mapped log files, which stay mapped while a batch is alive.
        verify
            Whether to check the checksums of each record.

        Returns
        -------
        Scan
            Exports ``__arrow_c_stream__``: pyarrow, Polars, DuckDB and others read it.

        Examples
        --------
        >>> import pyarrow
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.producer("trades").send_batch([b"AAPL 187.2", b"MSFT 402.1"])
        ...     pyarrow.table(store.scan("trades", columns=["offset", "body"])).num_rows
        2
        """
    def verify(self, progress: Progress | None = None) -> Verification:
        """Check the whole store: records, queue entries and index entries.

        Parameters
        ----------
        progress
            Called with the bytes checked so far and in total; an exception from it stops the
            check.

        Returns
        -------
        Verification
            Counts of what is intact, and the damage. Nothing is repaired.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.send("orders", b"body")
        ...     store.verify().ok
        True
        """
    def delete_before(self, topic: str, to: Bound) -> dict[int, int]:
        """Delete the messages of a topic before an offset or a time.

        The queues of a partition log begin there afterwards, as after ``DeleteRecords`` in
        Kafka. Segments that hold no other messages are removed. Durable on return. After Ctrl-C
        the messages may already be deleted; remaining segments are removed by the next removal,
        or when the store is opened again.

        Parameters
        ----------
        topic
            The topic.
        to
            ``"latest"``: all messages; an aware datetime: those before the first one stored at
            or after it; ``{queue: offset}``: those with lower offsets in these queues.

        Returns
        -------
        dict
            The first offset of each queue that `to` covers. An offset that was already deleted
            changes nothing.

        Raises
        ------
        UnknownTopicError
            If there is no such topic or queue.
        OffsetOutOfRangeError
            If an offset is greater than the next one to be written.
        UnsupportedError
            Unless the store is a partition log.

        Examples
        --------
        >>> with forebay.open("log", engine="partitionlog", default_queues=1) as store:
        ...     for number in range(3):
        ...         _ = store.send("orders", str(number).encode())
        ...     store.delete_before("orders", {0: 2})
        ...     store.read("orders", queue=0, offset=2).messages[0].body
        {0: 2}
        b'2'
        """
    def compact(
        self,
        topic: str | None = None,
        progress: Progress | None = None,
        *,
        drop_keyless: bool = True,
    ) -> Compaction:
        """Drop messages that have a later one with the same key.

        Compacts the complete segments of a partition log, of all topics with
        ``cleanup_policy="compact"`` or of one of them, however little is dirty. Offsets never
        change. A message without a value, a tombstone, and what it deletes are dropped as
        ``delete_retention_ms`` says. Everything that the call did is durable on return.

        Parameters
        ----------
        topic
            A topic that is compacted; by default all of them.
        progress
            Called with the bytes read so far and in total; an exception from it stops the
            compaction; segments already replaced stay replaced.
        drop_keyless
            Whether messages without a key are dropped, which stand for no state. A topic that
            was not always compacted may have some. If False, a queue that has one is left as it
            is.

        Returns
        -------
        Compaction
            Counts of what was read and kept.

        Raises
        ------
        InvalidOptionError
            If the topic, or every topic, is not compacted. With ``drop_keyless=False``, if a
            message without a key would be dropped; all other queues were compacted.
        UnsupportedError
            Unless the store is a partition log.
        CorruptError
            If a segment is damaged, also one that an earlier compaction has found. It is left as
            it is, and all other queues were compacted.
        StoreFailedError
            If an earlier compaction of a queue failed while it replaced segments: it continues
            when the store is opened again. All other queues were compacted.

        Examples
        --------
        >>> options = {"engine": "partitionlog", "cleanup_policy": "compact"}
        >>> with forebay.open("state", segment_bytes=4096, **options) as store:
        ...     for number in range(1000):
        ...         _ = store.send("state", str(number).encode(), key="counter")
        ...     done = store.compact("state")
        >>> done.messages_read > done.messages_written
        True
        """
    def archive(
        self,
        target: str | PathLike[str],
        *,
        filesystem: Any = None,
        progress: Progress | None = None,
    ) -> Archived:
        """Copy sealed log files or complete segments, which are never written again, to an archive.

        Files that the archive already has are not copied again. See `forebay.archive`.

        Parameters
        ----------
        target
            A directory, a URI such as ``"s3://bucket/prefix"``, or a path in `filesystem`.
        filesystem
            A pyarrow or fsspec file system.
        progress
            Called with the bytes copied so far and in total; an exception from it stops the
            copy.

        Returns
        -------
        forebay.archive.Archived
            What was copied, and the position up to which the archive has the log.
        """
    def repair(self, progress: Progress | None = None) -> Repair:
        """Save damaged bytes beside the log, and repair what can be repaired.

        Damaged bytes are saved in the store's directory `damaged`. Holes in the log are filled
        with records that belong to no queue, so that RocketMQ, too, can read past them. Queue
        entries, index files and the tables that Forebay writes are rebuilt from the log. Damaged
        tables of another system are saved and left as they are. Of a partition log damaged
        batches are removed, which leaves a gap between offsets, and indexes and tables are
        written again; damaged bytes are saved beside their file, under a name that ends with
        `.damaged`. Other threads may send and read meanwhile; readers in other processes see the
        repaired files when they open the store again. The disk needs space for one more log
        file.

        Parameters
        ----------
        progress
            Called with the bytes checked so far and in total. This happens before anything is
            changed; an exception from it stops the repair.

        Returns
        -------
        Repair
            What was repaired, durably, and what is still damaged.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.send("orders", b"body")
        ...     store.repair().steps
        []
        """
    def stats(self) -> Stats:
        """Return counters and times since the store was opened, without waiting for senders or
        flushes.

        Returns
        -------
        Stats
            Rates, latencies, and the backlogs of flush and dispatch.

        Examples
        --------
        >>> with forebay.open(":memory:") as store:
        ...     _ = store.producer("orders").send_batch([b"a", b"b"])
        ...     stats = store.stats()
        >>> stats.messages_sent, stats.put_latency.count, stats.flush_behind
        (2, 1, 0)
        """
    def close(self) -> None:
        """Make everything durable, report errors, and release the files. Closing again does
        nothing.

        Raises
        ------
        BusyError
            If another process had the table of consumers' progress locked for 5 s. The store is
            closed; messages that were settled since the progress was last stored are delivered
            again, unless other processes share the store.
        """
    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: object,
    ) -> None: ...

def open_store(
    path: str | PathLike[str],
    mode: str,
    engine: str | None,
    flush: str | None,
    adopt: bool,
    options: dict[str, Any],
    clock: ManualClock | None = None,
) -> Store:
    """Open a store; `forebay.open` checks and documents the arguments."""

@final
class Conversion:
    """The result of a conversion.

    Attributes
    ----------
    messages
        Number of messages that this call has copied.
    topics
        The name in the target of each topic of the source.
    left_out
        Topics that the systems keep for themselves, which are not converted, and how many
        offsets they have.
    damaged
        Number of damaged places of the source, whose messages could not be read.
    resumed
        Whether an earlier call had begun.
    """

    def __new__(cls, made_by_forebay: Never) -> Self: ...
    @property
    def messages(self) -> int:
        """Number of messages that this call has copied."""
    @property
    def topics(self) -> dict[str, str]:
        """The name in the target of each topic of the source."""
    @property
    def left_out(self) -> dict[str, int]:
        """Topics that the systems keep for themselves, which are not converted, and how many
        offsets they have.
        """
    @property
    def damaged(self) -> int:
        """Number of damaged places of the source, whose messages could not be read."""
    @property
    def resumed(self) -> bool:
        """Whether an earlier call had begun."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

def convert_store(
    source: str | PathLike[str],
    target: str | PathLike[str],
    engine: str,
    topics: list[str] | None,
    names: dict[str, str],
    renumber: bool,
    isolation: str,
    flush: str | None,
    given: dict[str, Any],
    progress: Progress | None,
) -> Conversion:
    """Convert a store; `forebay.convert` checks and documents the arguments."""

def message_from_record(record: bytes) -> Message:
    """Return the message that a record encodes; used for unpickling.

    Raises
    ------
    ValueError
        If the bytes are not a record.
    """

@final
class EngineKind:
    """A kind of engine, by the name that the option ``engine`` has for it."""

    def __new__(cls, name: str) -> Self: ...
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def keeps_files(self) -> bool:
        """Whether its stores are directories."""
    @property
    def has_one_log(self) -> bool:
        """Whether its stores keep all messages in one log, whose positions are bytes."""
    @property
    def in_kafka_form(self) -> bool:
        """Whether messages can have no body, any bytes as key, and headers, as in Kafka."""

@final
class Meanings:
    """What names, times and messages mean in a store."""

    @property
    def kind(self) -> EngineKind:
        """The kind of its engine."""
    @property
    def append_times(self) -> bool:
        """Whether times never decrease in a queue."""
    @property
    def lasting_positions(self) -> bool:
        """Whether positions of the log mean the same when the store is opened again."""
    @property
    def in_kafka_form(self) -> bool:
        """Whether messages can have no body, any bytes as key, and headers, as in Kafka."""
    @property
    def retry_prefix(self) -> str:
        """Prefix of the topics of retries; the name of a group follows."""
    @property
    def dead_prefix(self) -> str:
        """Prefix of the topics of dead letters; the name of a group follows."""

@final
class QueueBounds:
    """Bounds of a queue: its first offset, and the offset after its last message that ends at or
    below the position.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

@final
class Bounds:
    """Bounds of queues below a position of the log."""

    @property
    def position(self) -> int: ...
    @property
    def queues(self) -> list[QueueBounds]: ...

def bounds_below(store: Store, topics: list[str], position: int | None = None) -> Bounds:
    """Return the bounds of the topics' queues below a position of the log, by default the durable
    position. Topics that the store does not have are omitted.
    """

def wait_beyond(store: Store, position: int, timeout: timedelta) -> bool:
    """Wait until there is a message after a position of the log, at most for a time. Return whether
    there is one. It need not be durable.
    """

@final
class Fitted:
    """Messages of a queue that fit into a number of bytes: the offset after the last of them, and
    their total size in bytes.
    """

    @property
    def end(self) -> int: ...
    @property
    def bytes(self) -> int: ...

def fit(store: Store, topic: str, queue: int, start: int, end: int, max_bytes: int) -> Fitted:
    """Return the messages of a queue, from `start` on, that fit into `max_bytes` together."""

class _Queue(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...

@final
class QueueOffsets:
    """Offsets of a queue: ``start`` to ``end`` (exclusive)."""

    @property
    def queue(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

def offsets_between(
    source: Any,
    topic: str,
    queues: Sequence[_Queue],
    start: Bound,
    end: Bound,
) -> list[QueueOffsets]:
    """The offsets between two bounds, of queues of a topic. `source` is a store or an archive: its
    `offset_at` is asked for the offset of a time.
    """

class _Epoch(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def began(self) -> int: ...
    @property
    def start(self) -> int: ...

@final
class Epochs:
    """The epochs of a store: each opening for writing begins one."""

    def __new__(cls, number: int = 0, known: Sequence[_Epoch] = ...) -> Self: ...
    @property
    def number(self) -> int:
        """The number of the newest epoch; 0 if there is none."""
    @property
    def began(self) -> int:
        """When the newest epoch began, in ns since 1970; 0 if unknown."""
    def intact_until(self, epoch: int, began: int, position: int, durable: int) -> int | None:
        """Return the position up to which a log, durable up to `durable`, is the one that was
        durable up to `position` in the epoch of this number and beginning.

        `None` means that nothing was lost, and 0 that another log has replaced it. The lowest
        beginning of a later epoch is where the log was cut, however much was appended later.
        Only the last 128 epochs are known: a log that was cut in an earlier one, and has grown
        again, is not detected.
        """

def epochs(path: str | PathLike[str]) -> Epochs | None:
    """Return the epochs of the store at a path; `None` if Forebay has never written to it."""

def scan_again(store: Store, arguments: dict[str, Any]) -> Scan:
    """Return a scan of a store with these arguments. Used for unpickling, and by Spark, which also
    passes the dialect.
    """

class _OffsetRange(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

@final
class Block:
    """A block of an archived log file; ``begin_ms`` and ``end_ms`` are its lowest and highest store
    times.
    """

    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def begin_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...

@final
class QueueEnd:
    """The offset after the last message that a queue has before a block."""

    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def end(self) -> int: ...

@final
class QueueRange:
    """The messages of one queue in an archived log file: offsets ``start`` to ``end``
    (exclusive).
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...

@final
class SealedFile:
    """A sealed log file of a store: it is never written again."""

    @property
    def path(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...

@final
class Survey:
    """The tables that an archive keeps for a log file: one of blocks, one of keys."""

    @property
    def blocks(self) -> bytes: ...
    @property
    def keys(self) -> bytes: ...

@final
class SealedSegment:
    """A segment of a partition log that is never written again; all its messages have offsets
    ``start`` to ``end`` (exclusive).
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def length(self) -> int: ...

@final
class SegmentSurvey:
    """The part of a segment that an archive keeps: its bytes from ``skip`` on, in a segment that
    begins at the offset ``start``, its table of blocks and its indexes. No bytes if ``length``
    is 0.
    """

    @property
    def start(self) -> int: ...
    @property
    def skip(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def blocks(self) -> bytes: ...
    @property
    def offset_index(self) -> bytes: ...
    @property
    def time_index(self) -> bytes: ...

@final
class BlockTable:
    """The table of blocks of an archived log file."""

    def __new__(cls, data: Buffer, path: str, log: str) -> Self: ...
    @property
    def start(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def queues(self) -> list[QueueRange]: ...
    @property
    def blocks(self) -> list[Block]: ...
    @property
    def damage(self) -> list[Damage]: ...
    def weights(self, ranges: Sequence[_OffsetRange]) -> list[int]: ...
    def select(self, ranges: Sequence[_OffsetRange]) -> list[int]: ...
    def ends_before(self, block: int) -> list[QueueEnd]: ...
    def key_range(self, topic: str, key: str) -> tuple[int, int]: ...
    def key_blocks(self, topic: str, key: str, data: Buffer, path: str) -> list[int]: ...

@final
class BlockScan:
    """A scan of blocks that were read from an archive.

    It exports a single stream, which owns a copy of the bytes.
    """

    @property
    def damage(self) -> list[Damage]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...

def sealed_files(store: Store) -> list[SealedFile]:
    """Return the sealed log files of a store; they are never written again."""

def survey(store: Store, start: int) -> Survey:
    """Return the tables of the sealed log file that begins at `start`."""

def sealed_segments(
    store: Store, topic: str | None = None, queue: int = 0
) -> list[SealedSegment] | None:
    """Return the sealed segments of a partition log, of all queues or of one, in order of offset
    for each; None for other stores.
    """

def survey_segment(store: Store, segment: SealedSegment, after: int | None) -> SegmentSurvey:
    """Return the part of a sealed segment that an archive keeps, if the archive already has all
    messages of the queue before the offset `after`.
    """

def block_schema(arguments: dict[str, Any]) -> CapsuleType:
    """Return the batch schema of a scan with these arguments, as an Arrow capsule."""

def scan_blocks(
    data: Buffer,
    position: int,
    path: str,
    blocks: Sequence[Block],
    ranges: Sequence[_OffsetRange],
    arguments: dict[str, Any],
    queue: tuple[str, int] | None = None,
) -> BlockScan:
    """Scan adjacent blocks.

    `data` begins at `position` of the log and was read from `path`; lengths and checksums of
    `blocks` are compared with it. `queue` is the topic and queue of a segment of a partition
    log.
    """

def chain_scans(scans: Iterator[BlockScan], arguments: dict[str, Any], path: str) -> CapsuleType:
    """Export the scans that an iterator yields, of the archive at `path`, as one stream.

    The reader of the stream is foreign code, which drops Python's exceptions. So an error of the
    iterator ends the stream as an error with its text. Ctrl-C ends it too, and the interpreter
    raises its exception as soon as it runs Python code again.
    """

def block_offset_at(
    data: Buffer,
    position: int,
    path: str,
    ranges: Sequence[_OffsetRange],
    time: int,
    queue: tuple[str, int] | None = None,
) -> int | None:
    """Return the lowest offset in `ranges` of a message in these blocks stored at or after
    `time`.
    """

@final
class Contents:
    """Number and fingerprint of rows, independent of their order.

    Attributes
    ----------
    rows
        Their number.
    sum
        The sum of their checksums, modulo 2^64.
    """

    @property
    def rows(self) -> int:
        """Their number."""
    @property
    def sum(self) -> int:
        """The sum of their checksums, modulo 2^64."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Staged:
    """The rows of one task: a private file beside the store.

    Attributes
    ----------
    name
        Its name.
    contents
        Number and fingerprint of its rows.
    slices
        Start and end of parts of the file, each of which is appended at once.
    """

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def contents(self) -> Contents:
        """Number and fingerprint of its rows."""
    @property
    def slices(self) -> _Pairs:
        """Start and end of parts of the file, each of which is appended at once."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Stager:
    """Writes the rows of one task to a stage."""

    def __new__(cls, path: str | PathLike[str], query: str, topic: str | None = None) -> Self: ...
    def write(self, batch: ArrowStream | ArrowArray) -> None:
        """Add the rows of a record batch."""
    def finish(self) -> Staged | None:
        """Complete the stage, without making it durable; ``None`` if no row was written."""
    def close(self) -> None:
        """Delete the stage, unless it is complete."""

@final
class CommitProgress:
    """The progress of a commit.

    Attributes
    ----------
    state
        ``"pending"``, ``"begun"``, ``"refused"`` or ``"gone"``.
    reason
        Why the commit was refused; None in other states.
    appended
        Whether a part of a refused commit is in the log.
    held
        Whether a process has the store open for writing.
    """

    @property
    def state(self) -> str:
        """``"pending"``, ``"begun"``, ``"refused"`` or ``"gone"``."""
    @property
    def reason(self) -> str | None:
        """Why the commit was refused; None in other states."""
    @property
    def appended(self) -> bool:
        """Whether a part of a refused commit is in the log."""
    @property
    def held(self) -> bool:
        """Whether a process has the store open for writing."""

def stage_target(path: str | PathLike[str], topic: str | None = None) -> EngineKind | None:
    """Return the engine of the Forebay store at a path, ``None`` if there is no store; raise an
    error if none can be created there, or if the topic of all rows is invalid.
    """

def publish_commit(
    path: str | PathLike[str],
    query: str,
    batch: int,
    kind: str,
    stages: Sequence[Staged],
    conflict: str = "fail",
) -> bool:
    """Write the manifest of a commit. Return whether the writer will process this one, not an
    earlier one of the same batch.
    """

def resolve_commit(path: str | PathLike[str], query: str, batch: int, resolution: str) -> bool:
    """Decide what happens to a batch that is only partly in the log. Return whether the writer will
    process this decision, not a pending commit of the batch.
    """

def take_commits(store: Store) -> None:
    """Append all pending commits, as the writer of the store."""

def contents_of(stages: Sequence[Staged]) -> Contents:
    """Return number and fingerprint of the rows of all stages together."""

def holds_commit(store: Store, query: str, batch: int, contents: Contents, skips: bool) -> bool:
    """Return whether the durable log holds a whole batch with these contents."""

def last_marker(store: Store, query: str) -> str | None:
    """Return the body of a query's last marker in the log, a JSON object; ``None`` if there is
    none.
    """

def wait_for_commit(
    path: str | PathLike[str], query: str, batch: int, timeout: float
) -> CommitProgress:
    """Wait until a commit is processed, or no process writes the store, or no commit makes progress
    for the length of the timeout.
    """

def writer_of(path: str | PathLike[str]) -> int | None:
    """Return the id of the process that writes the store, if known."""

def withdraw_commit(path: str | PathLike[str], query: str, batch: int) -> bool:
    """Withdraw a commit and delete its stages; return false if it has begun or was processed."""

def discard_stages(path: str | PathLike[str], query: str, names: Sequence[str]) -> None:
    """Delete stages, unless a manifest names them."""

def close_query(path: str | PathLike[str], query: str) -> None:
    """Delete the directory of a query that will have no more commits."""

_Pairs: TypeAlias = list[tuple[int, int]]

@final
class Stretch:
    """A part of a store to verify: a range of the log, a range of a queue's entries, or an index
    file.

    Attributes
    ----------
    kind
        ``"log"``, ``"queue"`` or ``"index"``.
    size
        Number of bytes of the log, or of entries of a queue or an index file.
    """

    @property
    def kind(self) -> str:
        """``"log"``, ``"queue"`` or ``"index"``."""
    @property
    def size(self) -> int:
        """Number of bytes of the log, or of entries of a queue or an index file."""

@final
class FoundHole:
    """A range of the log without intact records.

    Attributes
    ----------
    start, end
        Positions in the log.
    reason
        What is wrong with the first record.
    lost
        Messages known to be lost, as (topic, queue, offset).
    """

    @property
    def start(self) -> int:
        """start, end: Positions in the log."""
    @property
    def end(self) -> int:
        """start, end: Positions in the log."""
    @property
    def reason(self) -> str:
        """What is wrong with the first record."""
    @property
    def lost(self) -> list[tuple[str, int, int]]:
        """Messages known to be lost, as (topic, queue, offset)."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Finding:
    """The result of verifying one part.

    Attributes
    ----------
    verification
        Counts of intact records and entries, and damage other than holes.
    holes
        For a part of the log, the holes that begin in it; for others, the holes that its entries
        point into.
    last_store_ms
        Store time of the last intact record, in milliseconds since the epoch.
    """

    @property
    def verification(self) -> Verification:
        """Counts of intact records and entries, and damage other than holes."""
    @property
    def holes(self) -> list[FoundHole]:
        """For a part of the log, the holes that begin in it; for others, the holes that its
        entries point into.
        """
    @property
    def last_store_ms(self) -> int:
        """Store time of the last intact record, in milliseconds since the epoch."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class LaidRun:
    """Adjacent queue entries that were built from a range of the log.

    Attributes
    ----------
    topic, queue
        The queue.
    first, next
        First offset, and the offset after the last.
    position
        Position in the log of the first record.
    """

    @property
    def topic(self) -> str:
        """topic, queue: The queue."""
    @property
    def queue(self) -> int:
        """topic, queue: The queue."""
    @property
    def first(self) -> int:
        """first, next: First offset, and the offset after the last."""
    @property
    def next(self) -> int:
        """first, next: First offset, and the offset after the last."""
    @property
    def position(self) -> int:
        """Position in the log of the first record."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class LaidRange:
    """A range of the log whose queue entries and keys were written.

    Attributes
    ----------
    start, end
        Positions in the log.
    records, keys
        Number of records and keys.
    runs
        A list of `LaidRun`.
    holes, bridges
        Start and end of damaged ranges, and of records that fill repaired holes.
    """

    @property
    def start(self) -> int:
        """start, end: Positions in the log."""
    @property
    def end(self) -> int:
        """start, end: Positions in the log."""
    @property
    def records(self) -> int:
        """records, keys: Number of records and keys."""
    @property
    def keys(self) -> int:
        """records, keys: Number of records and keys."""
    @property
    def runs(self) -> list[LaidRun]:
        """A list of `LaidRun`."""
    @property
    def holes(self) -> _Pairs:
        """holes, bridges: Start and end of damaged ranges, and of records that fill repaired
        holes.
        """
    @property
    def bridges(self) -> _Pairs:
        """holes, bridges: Start and end of damaged ranges, and of records that fill repaired
        holes.
        """
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class IndexKeys:
    """An index file to build.

    Attributes
    ----------
    name
        Its name, a number.
    first, count
        Index of its first key among all keys of the log, and its number of keys.
    """

    @property
    def name(self) -> int:
        """Its name, a number."""
    @property
    def first(self) -> int:
        """first, count: Index of its first key among all keys of the log, and its number of
        keys.
        """
    @property
    def count(self) -> int:
        """first, count: Index of its first key among all keys of the log, and its number of
        keys.
        """
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

@final
class Merged:
    """The completed queues of a store, and the index files still to build.

    Attributes
    ----------
    end
        End position of the log.
    records, queues, queue_entries
        Number of each.
    fillers
        Queue entries for offsets that have no message.
    holes
        Start and end of damaged ranges of the log.
    index
        A list of `IndexKeys`.
    """

    @property
    def end(self) -> int:
        """End position of the log."""
    @property
    def records(self) -> int:
        """records, queues, queue_entries: Number of each."""
    @property
    def queues(self) -> int:
        """records, queues, queue_entries: Number of each."""
    @property
    def queue_entries(self) -> int:
        """records, queues, queue_entries: Number of each."""
    @property
    def fillers(self) -> int:
        """Queue entries for offsets that have no message."""
    @property
    def holes(self) -> _Pairs:
        """Start and end of damaged ranges of the log."""
    @property
    def index(self) -> list[IndexKeys]:
        """A list of `IndexKeys`."""
    def _asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict."""

def verify_stretches(store: Store) -> list[Stretch]:
    """Return the parts of a verification in order."""

def verify_parts(store: Store, parts: list[Stretch], holes: _Pairs) -> list[Finding]:
    """Verify parts, and return a finding for each. `holes` lists start and end of all holes of the
    log.
    """

def values_again(kind: str, values: dict[str, Any]) -> Any:
    """Restore a pickled object from the name of its class and its values."""

def verify_join(store: Store, findings: list[Finding]) -> Verification:
    """Combine the findings of all parts, given in the order of the parts."""

def rebuild_ranges(path: str | PathLike[str], locked: bool) -> _Pairs:
    """Return the ranges of the log of a store that no process writes. `locked` says that the caller
    holds its lock.
    """

def rebuild_lay(
    path: str | PathLike[str],
    target: str | PathLike[str],
    ranges: _Pairs,
    index: bool,
    token: str,
) -> list[LaidRange]:
    """Write the queue entries of ranges of the log, and with `index` their keys; durable on
    return.
    """

def rebuild_merge(
    path: str | PathLike[str], target: str | PathLike[str], laid: list[LaidRange]
) -> Merged:
    """Check and complete the queues of all ranges, given in log order, and plan the index files."""

class _StagedKeys(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def keys(self) -> int: ...

def rebuild_index(
    path: str | PathLike[str],
    target: str | PathLike[str],
    staged: Sequence[_StagedKeys],
    plans: list[IndexKeys],
    token: str,
) -> None:
    """Build index files. `staged` holds the keys of each range, in log order."""

@final
class StoreLock:
    """The lock of a store that no process writes; held until `release`."""

    def __new__(cls, path: str | PathLike[str], adopt: bool) -> Self: ...
    def install(
        self,
        built: str | PathLike[str],
        away: str | PathLike[str],
        index: list[IndexKeys],
    ) -> None:
        """Replace the store's queues and index by those in `built`, and move the old ones to
        `away`.
        """
    def release(self) -> None:
        """Release the lock, so that other processes can open the store for writing."""

def record_offsets(
    path: str | PathLike[str], group: str, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Set rows of the table of offsets of the store at `path`, for a group that consumes elsewhere.

    ``offsets`` maps (topic, queue) to the next offset. All other rows stay. Durable on return.
    """
