"""Stores in an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Literal, Self

from forebay import _forebay
from forebay.aio.consumer import Consumer
from forebay.aio.producer import Producer
from forebay.aio.tail import Tail
from forebay.aio.waits import Waits, in_thread
from forebay.given import check, check_seconds, listed

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from typing_extensions import Buffer

    from forebay._forebay import (
        Compaction,
        Damage,
        GroupQueue,
        Message,
        ReadBatch,
        Recovery,
        Repair,
        Scan,
        SendResult,
        Stats,
        Topic,
        Verification,
    )
    from forebay.options import (
        Bound,
        ConsumerOptions,
        Duration,
        EngineName,
        MessageFields,
        Mode,
        Progress,
        ScanOptions,
    )


class Opening:
    """A store that is about to be opened; returned by `open`."""

    def __init__(self, opens: Callable[[], _forebay.Store]) -> None:
        self._opens = opens
        self._store: Store | None = None

    async def _open(self) -> Store:
        opened: list[_forebay.Store] = []
        try:
            await in_thread(lambda: opened.append(self._opens()))
        except asyncio.CancelledError:
            if opened:
                await in_thread(opened[0].close)
            raise
        self._store = Store(opened[0])
        return self._store

    def __await__(self) -> Generator[Any, None, Store]:
        """Open the store; the caller closes it."""
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        return await self._open()

    async def __aexit__(self, *_raised: object) -> None:
        if self._store is not None:
            await self._store.close()


class Store:
    """An open store whose calls are awaited; made by `open`, for one event loop.

    Its methods have the names, parameters, results and errors of `forebay.Store`. Attributes that
    read the store (``topics``, ``groups``) are awaited, too; the others are not.

    Parameters
    ----------
    plain
        An open store. A second event loop, or a test, can use it through an object of its own;
        closing one of them closes the store.

    Attributes
    ----------
    plain
        The store itself, for calls that have no awaited form. They block the loop unless they run
        in a thread, as by ``asyncio.to_thread``.
    """

    def __init__(self, plain: _forebay.Store) -> None:
        check("plain", plain, _forebay.Store, "a store")
        self.plain = plain
        self._waits = Waits(plain)

    @property
    def path(self) -> str:
        """The path as passed to `open`."""
        return self.plain.path

    @property
    def engine(self) -> EngineName:
        """``"commitlog"``, ``"partitionlog"`` or ``"memory"``."""
        return self.plain.engine

    @property
    def mode(self) -> Mode:
        """The mode as passed to `open`."""
        return self.plain.mode

    @property
    def recovery(self) -> Recovery:
        """What opening the store found and did."""
        return self.plain.recovery

    @property
    def damage(self) -> list[Damage]:
        """All damage found so far."""
        return self.plain.damage

    @property
    def durable_position(self) -> int:
        """Position up to which the log is durable."""
        return self.plain.durable_position

    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
        return self.plain.closed

    @property
    def topics(self) -> Awaitable[dict[str, Topic]]:
        """All topics by name: ``await store.topics``."""
        return self._waits.call(lambda: self.plain.topics)

    @property
    def groups(self) -> Awaitable[dict[str, list[GroupQueue]]]:
        """How far each group has consumed: ``await store.groups``."""
        return self._waits.call(lambda: self.plain.groups)

    async def send(
        self,
        topic: str,
        body: Buffer | None,
        *,
        flush: bool | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send one message, as `Producer.send`; the topic is created if it does not exist."""
        return await self.producer(topic).send(body, flush=flush, **fields)

    def producer(
        self,
        topic: str,
        queue: int | Literal["own"] | None = None,
        *,
        name: str | None = None,
    ) -> Producer:
        """Return a producer for a topic.

        A new topic is created, and a queue of its own taken, when the producer is awaited or first
        sends: both may wait for other processes.
        """
        makes = functools.partial(self.plain.producer, topic, queue, name=name)
        producer = Producer(self._waits, makes, topic, name)
        if self.plain._produces_at_once(topic, queue, name):
            producer._begin()
        return producer

    async def create_topic(self, topic: str, queues: int | None = None) -> Topic:
        """Create a topic, or return the existing one; durable on return."""
        return await self._waits.call(self.plain.create_topic, topic, queues)

    async def flush(self) -> int:
        """Make everything that was sent durable; return the durable position."""
        return await self._waits.call(self.plain.flush)

    async def roll(self) -> int | None:
        """Seal the current log file."""
        return await self._waits.call(self.plain.roll)

    async def get(self, topic: str, queue: int, offset: int) -> Message:
        """Return the message at an offset of a queue."""
        return await self._waits.call(self.plain.get, topic, queue, offset)

    async def read(
        self,
        topic: str,
        queue: int,
        offset: int,
        max_messages: int = 32,
        max_bytes: int | None = None,
        tags: str | Iterable[str] | None = None,
    ) -> ReadBatch:
        """Read messages of a queue."""
        read = self.plain.read
        return await self._waits.call(read, topic, queue, offset, max_messages, max_bytes, tags)

    async def message(self, position: int | str, /) -> Message:
        """Return the message at a position, or the one with a message id."""
        return await self._waits.call(self.plain.message, position)

    async def query(
        self,
        topic: str,
        key: str | bytes,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        max_messages: int = 32,
    ) -> list[Message]:
        """Return the messages of a topic that have exactly this key, newest first."""
        return await self._waits.call(self.plain.query, topic, key, begin, end, max_messages)

    async def offset_at(self, topic: str, queue: int, time: datetime | int) -> int:
        """Return the offset of a queue's first message stored at or after a time."""
        return await self._waits.call(self.plain.offset_at, topic, queue, time)

    def tail(
        self,
        topic: str,
        start: Bound = "latest",
        follow: bool = True,
        *,
        timeout: Duration | None = None,
    ) -> Tail:
        """Iterate over the messages of all queues of a topic with ``async for``."""
        begins = functools.partial(self.plain.tail, topic, start, follow)
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        return Tail(self._waits, begins, seconds)

    def consumer(
        self, topics: str | Iterable[str], *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """Join a group of consumers, with the parameters of `forebay.Store.consumer`."""
        if isinstance(topics, str):
            topics = (topics,)
        names = tuple(listed("topics", topics, str, "a topic or a sequence of topics"))
        joins = functools.partial(self.plain.consumer, names, group=group, **options)
        return Consumer(self._waits, joins, group, names)

    async def reset_offsets(self, group: str, topic: str, to: Bound) -> None:
        """Set how far a group has consumed a topic; durable on return."""
        await self._waits.call(self.plain.reset_offsets, group, topic, to)

    def scan(
        self, topic: str | Iterable[str] | None = None, **options: Unpack[ScanOptions]
    ) -> Scan:
        """Describe a scan, as `forebay.Store.scan`. Reading its batches blocks: use a thread."""
        return self.plain.scan(topic, **options)

    async def verify(self, progress: Progress | None = None) -> Verification:
        """Check the whole store. `progress` is called in a thread; cancelling stops the check."""
        return await self._waits.long_call(self.plain.verify, progress)

    async def compact(
        self,
        topic: str | None = None,
        progress: Progress | None = None,
        *,
        drop_keyless: bool = True,
    ) -> Compaction:
        """Drop messages that have a later one with the same key. Cancelling stops it."""
        compact = functools.partial(self.plain.compact, topic, drop_keyless=drop_keyless)
        return await self._waits.long_call(compact, progress)

    async def delete_before(self, topic: str, to: Bound) -> dict[int, int]:
        """Delete the messages of a topic before an offset or a time; durable on return."""
        return await self._waits.call(self.plain.delete_before, topic, to)

    async def repair(self, progress: Progress | None = None) -> Repair:
        """Repair what can be repaired. `progress` is called in a thread."""
        return await self._waits.long_call(self.plain.repair, progress)

    async def stats(self) -> Stats:
        """Return counters and times since the store was opened."""
        return await self._waits.call(self.plain.stats)

    async def close(self) -> None:
        """Make everything durable, report errors, and release the files. Waits of others end."""
        self._waits.check_loop()
        try:
            await in_thread(self._close)
        finally:
            self._waits.end()

    def _close(self) -> None:
        try:
            self.plain.close()
        finally:
            self._waits.notices.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<forebay.aio.Store of {self.plain!r}>"
