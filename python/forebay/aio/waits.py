"""What waits in one event loop for one store, and the calls that run in its executor."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from forebay import _forebay
from forebay.given import check_function
from forebay.options import Progress

_T = TypeVar("_T")
_Result = TypeVar("_Result", covariant=True)


class Ticket(Protocol[_Result]):
    """Tracks a message or a batch that may not be durable yet."""

    def done(self) -> bool:
        """Return whether the wait is over."""
        ...

    def _after(self, timeout: timedelta) -> _Result: ...


class Waits:
    """The waits of the running event loop in a store: a future for each token.

    A thread of the core that ends a wait posts its token, and the loop settles all futures whose
    tokens were posted in one callback.
    """

    def __init__(self, store: _forebay.Store) -> None:
        self.notices = _forebay.Notices(store)
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._loop.add_reader(self.notices.fileno(), self._settle)

    def _settle(self) -> None:
        for token in self.notices.take():
            future = self._futures.get(token)
            if future is not None:
                end(future)

    def check_loop(self) -> None:
        """Raise RuntimeError in another event loop."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this store belongs to another event loop: use forebay.aio.Store(store.plain)"
            )

    async def call(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Run a call that may block in a thread of the executor."""
        self.check_loop()
        return await in_thread(functools.partial(call, *arguments))

    async def long_call(
        self,
        call: Callable[[Callable[[int, int], object]], _T],
        progress: Progress | None,
    ) -> _T:
        """Run a call that reports its progress, which is where a cancellation stops it."""
        if progress is not None:
            check_function("progress", progress, "callable, or None")
        stop = threading.Event()

        def report(done: int, total: int) -> None:
            if stop.is_set():
                raise _StoppedError
            if progress is not None:
                progress(done, total)

        self.check_loop()
        return await in_thread(functools.partial(call, report), stop.set)

    async def durable(self, ticket: Ticket[_T], timeout: timedelta) -> _T:
        """Wait until a message or a batch is durable."""
        self.check_loop()
        if not ticket.done():
            begin = functools.partial(self.notices.when_done, ticket)
            await self._wait(begin, timeout.total_seconds(), None)
        return ticket._after(timeout)

    async def readable(
        self,
        position: int,
        timeout: float | None = None,
        *,
        changes: int | None = None,
        waiting: set[asyncio.Future[None]] | None = None,
    ) -> None:
        """Wait until the log is readable above `position`, or the store closes.

        With `changes`, also until consumers have another reason to check for messages.
        Returns after `timeout`, too. The future is in `waiting` meanwhile.
        """
        begun: list[int] = []

        def begin(token: int) -> bool:
            begun.append(token)
            self.notices.when_readable(position, changes, token)
            return True

        try:
            await self._wait(begin, timeout, waiting)
        finally:
            for token in begun:
                self.notices.forget(token)

    async def _wait(
        self,
        begin: Callable[[int], bool],
        timeout: float | None,
        waiting: set[asyncio.Future[None]] | None,
    ) -> None:
        """Wait until the token passed to `begin` is posted, unless `begin` returns false."""
        token, future = next(self._tokens), self._loop.create_future()
        self._futures[token] = future
        timer = None
        try:
            if begin(token):
                if timeout is not None:
                    timer = self._loop.call_later(timeout, end, future)
                if waiting is not None:
                    waiting.add(future)
                await future
        finally:
            del self._futures[token]
            if timer is not None:
                timer.cancel()
            if waiting is not None:
                waiting.discard(future)

    def end(self) -> None:
        """End all waits, and stop watching the descriptor."""
        self._loop.remove_reader(self.notices.fileno())
        for future in self._futures.values():
            end(future)


class _StoppedError(Exception):
    """Stops a call that was cancelled."""


def end(future: asyncio.Future[None]) -> None:
    """End a wait, unless it has ended."""
    if not future.done():
        future.set_result(None)


async def in_thread(call: Callable[[], _T], stop: Callable[[], None] | None = None) -> _T:
    """Run a call in the loop's executor. A cancellation calls `stop` and waits for its end."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, functools.partial(context.run, call))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
            if stop is not None:
                stop()
    if cancelled is not None:
        if not running.cancelled():
            # Otherwise the loop would report that the exception was never retrieved.
            running.exception()
        raise cancelled
    return running.result()
