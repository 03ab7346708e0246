"""Consumers in an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from forebay import _forebay
from forebay._forebay import Message
from forebay.aio.waits import Waits
from forebay.errors import ForebayError, OwnershipLostError, StoreClosedError
from forebay.given import check_seconds

if TYPE_CHECKING:
    from forebay._forebay import Pause
    from forebay.options import Duration, Start

_T = TypeVar("_T")


class Consumer:
    """A member of a group of consumers; made by `Store.consumer`.

    It joins the group when it is awaited, entered with ``async with``, or first used. Its methods
    have the names, parameters, results and errors of `forebay.Consumer`; ``assignment`` is awaited.
    Iterate with ``async for``, or call `poll`. There is no ``run``, which calls a handler in
    threads: a task that iterates takes its place. Each task should iterate by itself: with
    ``ack="auto"`` taking the next message acknowledges all that the same iterator has handed out,
    also to other tasks.
    """

    def __init__(
        self,
        waits: Waits,
        joins: Callable[[], _forebay.Consumer],
        group: str,
        topics: tuple[str, ...],
    ) -> None:
        self._waits = waits
        self._joins = joins
        self._group = group
        self._topics = topics
        self._plain: _forebay.Consumer | None = None
        self._joining = asyncio.Lock()
        self._closed = False
        #: Errors that occurred in calls that were cancelled.
        self._unseen: list[OwnershipLostError] = []

    async def _join(self) -> _forebay.Consumer:
        if self._plain is None:
            async with self._joining:
                if self._plain is None:
                    if self._closed:
                        raise StoreClosedError("the consumer is closed")
                    # `_start` sets `_plain` in the thread, so a cancellation does not lose a
                    # member.
                    await self._waits.call(self._start)
        assert self._plain is not None
        return self._plain

    def _start(self) -> None:
        self._plain = self._joins()
        if self._closed:
            # `close` waits until this returns, unless `close` was cancelled.
            self._plain.close()

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._group

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics."""
        return self._topics

    async def _joined(self) -> Self:
        await self._join()
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Join the group."""
        return self._joined().__await__()

    async def __aenter__(self) -> Self:
        return await self._joined()

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if self._plain is None:
            return f"<forebay.aio.Consumer that has not joined group {self._group!r}>"
        return f"<forebay.aio.Consumer of {self._plain!r}>"

    def __aiter__(self) -> AsyncIterator[Message]:
        return _Messages(self)

    async def poll(self, max_messages: int = 64, timeout: Duration | None = None) -> list[Message]:
        """Take messages, without settling them; wait for the first one up to `timeout`.

        A poll that is cancelled gives back what it has taken. If others have got the queues of
        this consumer meanwhile, the next poll, or the next step of an iteration, raises that.
        """
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        plain = await self._join()
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        while True:
            taken: list[Message] = []
            poll = functools.partial(_poll_into, plain, max_messages, taken)
            try:
                pause = await self._take(poll)
            except asyncio.CancelledError:
                if taken:
                    await self._waits.call(plain._give_back, taken)
                raise
            left = None if deadline is None else deadline - loop.time()
            if taken or (left is not None and left <= 0):
                return taken
            await self._wait(pause, left)

    async def _take(self, take: Callable[[], _T]) -> _T:
        """Run a call that takes messages in a thread.

        The core reports once that messages have another owner. If the call is cancelled, the next
        one raises that.
        """
        self._raise_unseen()
        raised: list[OwnershipLostError] = []

        def run() -> _T:
            try:
                return take()
            except OwnershipLostError as error:
                raised.append(error)
                raise

        try:
            return await self._waits.call(run)
        except asyncio.CancelledError:
            self._unseen += raised
            raise

    def _raise_unseen(self) -> None:
        if self._unseen:
            raise self._unseen.pop(0)

    async def _wait(self, pause: Pause, left: float | None) -> None:
        """Wait for a message, for a reason to check for one, or for the time left."""
        if pause.limit is not None:
            limit = pause.limit.total_seconds()
            left = limit if left is None else min(limit, left)
        if left is None or left > 0:
            await self._waits.readable(pause.position, left, changes=pause.changes)

    async def ack(self, messages: Message | Iterable[Message]) -> None:
        """Settle one message or several: they are handled."""
        plain = await self._join()
        left, error = plain._try_ack(messages)
        if left:
            try:
                await self._waits.call(plain.ack, left)
            except ForebayError as later:
                error = error or later
        if error is not None:
            raise error

    async def nack(self, message: Message, delay_level: int | None = None) -> None:
        """Have a message delivered again later."""
        await self._waits.call((await self._join()).nack, message, delay_level)

    async def reject(self, message: Message, reason: str | None = None) -> None:
        """Make a message a dead letter."""
        await self._waits.call((await self._join()).reject, message, reason)

    async def extend(self, message: Message, seconds: Duration) -> None:
        """Keep a message for longer before it is delivered again."""
        plain = await self._join()
        if not plain._try_extend(message, seconds):
            await self._waits.call(plain.extend, message, seconds)

    async def seek(self, to: Start) -> None:
        """Continue at other offsets in the queues that this consumer owns."""
        await self._waits.call((await self._join()).seek, to)

    async def lag(self) -> dict[tuple[str, int], int]:
        """Count the messages that are not settled yet, in each queue of this consumer."""
        return await self._waits.call((await self._join()).lag)

    @property
    def assignment(self) -> Awaitable[list[tuple[str, int]]]:
        """The queues that this consumer owns: ``await consumer.assignment``."""
        return self._assignment()

    async def _assignment(self) -> list[tuple[str, int]]:
        plain = await self._join()
        return await self._waits.call(lambda: plain.assignment)

    async def commit(self) -> None:
        """Store the progress of the group. What was settled is durable on return."""
        await self._waits.call((await self._join()).commit)

    async def close(self) -> None:
        """Leave the group, if it was joined. What is not settled is delivered to others at once.

        The consumer cannot join again. If it is joining, it leaves once it has joined.
        """
        self._closed = True
        async with self._joining:
            if self._plain is not None:
                await self._waits.call(self._plain.close)


def _poll_into(plain: _forebay.Consumer, max_messages: int, taken: list[Message]) -> Pause:
    """Add messages to `taken`, which the caller still has if it is cancelled."""
    polled = plain._try_poll(max_messages)
    taken.extend(polled.messages)
    return polled.pause


class _Messages:
    """The messages of a consumer, one by one.

    The plain iterator holds prefetched messages, and gives them back when it is dropped.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._plain: _forebay.ConsumerIterator | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        consumer = self._consumer
        if self._plain is None:
            plain = await consumer._join()
            # Another task may have begun meanwhile.
            if self._plain is None:
                self._plain = iter(plain)
        while True:
            consumer._raise_unseen()
            message = self._plain._ready()
            if message is not None:
                return message
            pause = await consumer._take(self._plain._try_poll)
            if pause is not None:
                await consumer._wait(pause, None)
