"""Iterations over a consumer: those that are cancelled in an event loop, and shared ones."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import forebay
import forebay.aio


@pytest.fixture(params=["memory", "files"])
def path(request, tmp_path):
    return ":memory:" if request.param == "memory" else tmp_path / "store"


def handed_out(messages: Any, count: int) -> list[bytes]:
    """Return the bodies of the next messages, which the plain iterator has ready."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        message = messages._ready()
        if message is None:
            messages._try_poll()
        else:
            bodies.append(message.body)
    return bodies


def test_a_message_kept_by_a_cancelled_iteration_is_checked_before_it_is_handed_out(path):
    """It was handed out although it could no longer be settled, and came again."""
    with forebay.open(path, default_queues=1) as store:
        store.producer("orders").send_batch([b"a", b"b"])
        consumer = store.consumer("orders", group="billing")
        messages = iter(consumer)
        # A task is cancelled during the second poll, which has chosen a message.
        assert messages._try_poll() is None
        assert messages._try_poll() is None
        consumer.seek("earliest")
        assert handed_out(messages, 2) == [b"a", b"b"]


class Fails:
    """A plain consumer or iterator that has no message ready, and whose first poll fails."""

    def __init__(self, plain: Any, error: forebay.ForebayError | None = None) -> None:
        self._plain, self._error = plain, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def _ready(self) -> None:
        return None

    def _try_poll(self, *arguments: int) -> Any:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._plain._try_poll(*arguments)


async def cancelled(call: Any) -> None:
    """Cancel a call while it runs in the executor."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_poll_loses_no_error(path):
    """The core reports once that others have got the queues. A cancelled poll dropped that."""

    async def run() -> None:
        async with forebay.aio.open(path, default_queues=1) as store:
            await store.send("orders", b"a")
            consumer = await store.consumer("orders", group="billing")
            plain = consumer._plain
            calls: list[Any] = [consumer.poll, aiter(consumer).__anext__]
            for call in calls:
                lost = forebay.OwnershipLostError("others have the queues")
                consumer._plain = Fails(plain, lost)  # type: ignore[assignment]
                await cancelled(consumer.poll())
                consumer._plain = plain
                with pytest.raises(forebay.OwnershipLostError) as raised:
                    await call()
                assert raised.value is lost
            # Another error comes again by itself, if its reason lasts.
            consumer._plain = Fails(plain, forebay.BusyError("locked"))  # type: ignore[assignment]
            await cancelled(consumer.poll())
            assert [message.body for message in await consumer.poll()] == [b"a"]

    asyncio.run(run())


def test_a_cancelled_iteration_loses_no_error(path):
    """It was dropped with the iterator, so nobody learned that a message comes again."""

    async def run() -> None:
        async with forebay.aio.open(path, default_queues=1) as store:
            await store.producer("orders").send_batch([b"a", b"b"])
            consumer = await store.consumer("orders", group="billing")
            messages: Any = aiter(consumer)
            assert (await anext(messages)).body == b"a"
            await consumer.seek("earliest")
            messages._plain = Fails(messages._plain)
            await cancelled(anext(messages))
            again = aiter(consumer)
            with pytest.raises(forebay.OwnershipLostError):
                await anext(again)
            assert [(await anext(again)).body for _ in range(2)] == [b"a", b"b"]

    asyncio.run(run())


def test_threads_that_share_an_iterator_leave_no_message_unsettled(path):
    """The message of a thread was forgotten if another one was given its own at that moment."""
    count = 500
    with forebay.open(path, default_queues=1) as store:
        store.producer("orders").send_batch([b"%d" % number for number in range(4 * count)])
        consumer = store.consumer("orders", group="billing", prefetch=3)
        messages = iter(consumer)

        def take() -> list[bytes]:
            return [next(messages).body for _ in range(count)]

        with ThreadPoolExecutor(4) as pool:
            taken = [pool.submit(take) for _ in range(4)]
            bodies = [body for one in taken for body in one.result()]
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(4 * count)]
        # This acknowledges the last ones.
        assert messages._try_poll() is not None
        assert consumer.lag() == {("orders", 0): 0}


def test_a_thread_gets_the_message_that_another_one_has_taken_ahead(path):
    """It waited for a later message, and the one taken ahead for the other thread."""
    with forebay.open(path, default_queues=1) as store:
        store.create_topic("orders")
        messages = iter(store.consumer("orders", group="billing"))
        with ThreadPoolExecutor(2) as pool:
            for turn in range(20):
                both = [pool.submit(next, messages) for _ in range(2)]
                store.producer("orders").send_batch([b"a", b"b"])
                assert sorted(one.result().body for one in both) == [b"a", b"b"], turn


def test_tasks_that_share_an_iterator_get_what_the_other_has_taken_ahead(path):
    async def run() -> None:
        async with forebay.aio.open(path, default_queues=1) as store:
            await store.create_topic("orders")
            messages = aiter(store.consumer("orders", group="billing"))
            for _ in range(20):
                both = [asyncio.ensure_future(anext(messages)) for _ in range(2)]
                await asyncio.sleep(0)
                await store.producer("orders").send_batch([b"a", b"b"])
                bodies = [message.body for message in await asyncio.gather(*both)]
                assert sorted(bodies) == [b"a", b"b"]

    asyncio.run(run())
