"""Tails in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Self

from forebay import _forebay
from forebay._forebay import Message
from forebay.aio.waits import Waits, end


class Tail:
    """The messages of a topic as they come, for ``async for``; made by `Store.tail`.

    It begins when it is awaited, entered with ``async with``, or asked for its first message.
    Several tasks may iterate; each message goes to one of them. A task that is cancelled while it
    waits takes no message with it. The iteration ends when the tail or its store is closed, and if
    no message comes for ``timeout``.
    """

    def __init__(
        self, waits: Waits, begins: Callable[[], _forebay.Tail], timeout: float | None
    ) -> None:
        self._waits = waits
        self._begins = begins
        self._timeout = timeout
        self._plain: _forebay.Tail | None = None
        self._found: Message | None = None
        self._is_over = False
        self._position = 0
        self._turn = asyncio.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = False

    async def _begin(self) -> Self:
        async with self._turn:
            await self._begun()
        return self

    async def _begun(self) -> _forebay.Tail:
        if self._plain is None:
            # In the thread, so that a cancellation does not lose what was begun.
            await self._waits.call(self._start)
        assert self._plain is not None
        return self._plain

    def _start(self) -> None:
        self._plain = self._begins()

    def __await__(self) -> Generator[Any, None, Self]:
        """Begin."""
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if self._plain is None:
            return "<forebay.aio.Tail that has not begun>"
        return f"<forebay.aio.Tail of {self._plain!r}>"

    async def close(self) -> None:
        """End the iteration, also in tasks that wait for a message."""
        self._closed = True
        if self._plain is not None:
            await self._waits.call(self._plain.close)
        for future in self._waiting:
            end(future)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        if self._plain is not None and self._found is None and not self._turn.locked():
            ready = self._plain._ready()
            if ready is not None:
                return ready
        loop = asyncio.get_running_loop()
        async with self._turn:
            plain = await self._begun()
            deadline = None if self._timeout is None else loop.time() + self._timeout
            while not self._closed:
                if self._found is not None:
                    message, self._found = self._found, None
                    return message
                await self._waits.call(self._try_next, plain)
                if self._found is None:
                    left = None if deadline is None else deadline - loop.time()
                    if self._is_over or (left is not None and left <= 0):
                        break
                    await self._waits.readable(self._position, left, waiting=self._waiting)
        raise StopAsyncIteration

    def _try_next(self, plain: _forebay.Tail) -> None:
        step = plain._try_next()
        self._found, self._is_over, self._position = step.message, step.is_over, step.position
