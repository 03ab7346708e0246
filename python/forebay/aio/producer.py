"""Producers in an event loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from forebay import _forebay
from forebay.aio.waits import Waits
from forebay.given import check

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Unpack

    from typing_extensions import Buffer

    from forebay._forebay import BatchResult, SendResult
    from forebay.options import ArrowArray, ArrowStream, BatchFields, MessageFields

_T = TypeVar("_T")


class Producer:
    """Sends messages to one topic; made by `Store.producer`."""

    def __init__(self, waits: Waits, plain: _forebay.Producer) -> None:
        self._waits = waits
        self._plain = plain
        self._at_once = plain._at_once()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._plain.topic

    @property
    def name(self) -> str | None:
        """The name of a producer that owns its queue; else None."""
        return self._plain.name

    def close(self) -> None:
        """Give up the queue that the producer owns; see `forebay.Producer.close`."""
        self._plain.close()

    async def send(
        self, body: Buffer | None, *, flush: bool | None = None, **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Send one message, with the parameters of `forebay.Producer.send`.

        A send that has begun stores its message. Cancelling it ends only the wait for the disk.
        """
        plain, timeout = self._plain, self._timeout(flush)
        if timeout is None:
            return await self._append(body, lambda: plain.send(body, flush=False, **fields))
        ticket = await self._append(body, lambda: self._at_once.send_nowait(body, **fields))
        return await self._waits.durable(ticket, timeout)

    async def send_batch(
        self,
        bodies: Iterable[Buffer | None],
        *,
        flush: bool | None = None,
        **fields: Unpack[BatchFields],
    ) -> BatchResult:
        """Send many messages, with the parameters of `forebay.Producer.send_batch`."""
        plain, timeout = self._plain, self._timeout(flush)
        if timeout is None:
            return await self._waits.call(lambda: plain.send_batch(bodies, flush=False, **fields))
        ticket = await self._waits.call(lambda: plain.send_batch_nowait(bodies, **fields))
        return await self._waits.durable(ticket, timeout)

    async def send_arrow(
        self,
        data: ArrowStream | ArrowArray,
        *,
        atomic: bool = False,
        flush: bool | None = None,
    ) -> BatchResult:
        """Send the rows of a table, a record batch, or a stream of them. Waits in a thread."""
        send = functools.partial(self._plain.send_arrow, atomic=atomic, flush=flush)
        return await self._waits.call(send, data)

    def _timeout(self, flush: bool | None) -> timedelta | None:
        """Return how long a send waits for the disk; `None` if it does not."""
        check("flush", flush, (bool, NoneType), "a bool or None")
        return self._plain._waits(flush)

    async def _append(self, body: Buffer | None, append: Callable[[], _T]) -> _T:
        """Append in the loop if that does not wait, for example for a file; else in a thread."""
        if self._plain._is_ready(size_of(body)):
            return append()
        return await self._waits.call(append)

    def __repr__(self) -> str:
        return f"<forebay.aio.Producer topic={self.topic!r}>"


def size_of(body: Buffer | None) -> int:
    """Return the length of a body; 0 for None, and for what the send refuses."""
    if isinstance(body, bytes):
        return len(body)
    try:
        return 0 if body is None else memoryview(body).nbytes
    except TypeError:
        return 0
