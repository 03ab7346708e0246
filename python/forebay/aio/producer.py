"""Producers in an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from forebay import _forebay
from forebay.aio.waits import Ticket, Waits
from forebay.given import check

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Unpack

    from typing_extensions import Buffer

    from forebay._forebay import BatchResult, SendResult
    from forebay.options import ArrowArray, ArrowStream, BatchFields, MessageFields

_T = TypeVar("_T")


class _Made(NamedTuple):
    plain: _forebay.Producer
    #: The same producer, whose messages do not linger.
    at_once: _forebay.Producer


class _Appended(Generic[_T]):
    """What was appended and is not durable yet, and how long to wait for the disk."""

    def __init__(self, ticket: Ticket[_T], timeout: timedelta) -> None:
        self.ticket = ticket
        self.timeout = timeout


class Producer:
    """Sends messages to one topic; made by `Store.producer`.

    A producer of a new topic, or of a queue of its own, begins with its first send, or when it is
    awaited: ``orders = await store.producer("orders", queue="own", name="p1")``.
    """

    def __init__(
        self, waits: Waits, makes: Callable[[], _forebay.Producer], topic: str, name: str | None
    ) -> None:
        self._waits = waits
        self._makes = makes
        self._topic = topic
        self._name = name
        self._made: _Made | None = None
        self._making = threading.Lock()
        self._closed = False

    def _begin(self) -> _Made:
        """Return the plain producer. The first call makes it, and may wait."""
        if self._made is None:
            # A second producer with a queue of its own would take it from the first one.
            with self._making:
                if self._made is None:
                    plain = self._makes()
                    self._made = _Made(plain, plain._at_once())
                    if self._closed:
                        plain.close()
        return self._made

    async def _begun(self) -> Self:
        if self._made is None:
            await self._waits.call(self._begin)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        """Create the topic, or take the queue, if that is not done yet."""
        return self._begun().__await__()

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    @property
    def name(self) -> str | None:
        """The name of a producer that owns its queue; else None."""
        return self._name

    def close(self) -> None:
        """Give up the queue that the producer owns; see `forebay.Producer.close`."""
        self._closed = True
        if self._made is not None:
            self._made.plain.close()

    async def send(
        self, body: Buffer | None, *, flush: bool | None = None, **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Send one message, with the parameters of `forebay.Producer.send`.

        A send that has begun stores its message. Cancelling it ends only the wait for the disk.
        """
        _check_flush(flush)

        def append() -> SendResult | _Appended[SendResult]:
            plain, at_once = self._begin()
            timeout = plain._waits(flush)
            if timeout is None:
                return plain.send(body, flush=False, **fields)
            return _Appended(at_once.send_nowait(body, **fields), timeout)

        # Appends in the loop if that does not wait, for example for a file; else in a thread.
        if self._made is not None and self._made.plain._is_ready(size_of(body)):
            return await self._durable(append())
        return await self._durable(await self._waits.call(append))

    async def send_batch(
        self,
        bodies: Iterable[Buffer | None],
        *,
        flush: bool | None = None,
        **fields: Unpack[BatchFields],
    ) -> BatchResult:
        """Send many messages, with the parameters of `forebay.Producer.send_batch`."""
        _check_flush(flush)

        def append() -> BatchResult | _Appended[BatchResult]:
            plain, _ = self._begin()
            timeout = plain._waits(flush)
            if timeout is None:
                return plain.send_batch(bodies, flush=False, **fields)
            return _Appended(plain.send_batch_nowait(bodies, **fields), timeout)

        return await self._durable(await self._waits.call(append))

    async def send_arrow(
        self,
        data: ArrowStream | ArrowArray,
        *,
        atomic: bool = False,
        flush: bool | None = None,
    ) -> BatchResult:
        """Send the rows of a table, a record batch, or a stream of them. Waits in a thread."""

        def send() -> BatchResult:
            return self._begin().plain.send_arrow(data, atomic=atomic, flush=flush)

        return await self._waits.call(send)

    async def _durable(self, appended: _T | _Appended[_T]) -> _T:
        """Wait for the disk, if the send does."""
        if isinstance(appended, _Appended):
            return await self._waits.durable(appended.ticket, appended.timeout)
        return appended

    def __repr__(self) -> str:
        return f"<forebay.aio.Producer topic={self.topic!r}>"


def _check_flush(flush: bool | None) -> None:
    check("flush", flush, (bool, NoneType), "a bool or None")


def size_of(body: Buffer | None) -> int:
    """Return the length of a body; 0 for None, and for what the send refuses."""
    if isinstance(body, bytes):
        return len(body)
    try:
        return 0 if body is None else memoryview(body).nbytes
    except TypeError:
        return 0
