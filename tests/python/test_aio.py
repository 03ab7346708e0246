"""Stores in an event loop: the same results, waits without threads, and cancellation."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from holding import AT_OWNERS, begin_again, held

import forebay
import forebay.aio


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), timeout=120))

    return run


@pytest.fixture(params=["memory", "files"])
def path(request, tmp_path):
    return ":memory:" if request.param == "memory" else tmp_path / "store"


def threads() -> list[str]:
    """Return the names of the threads of the core in this process."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sorted(name for name in names if name.startswith("forebay"))


class Counting(ThreadPoolExecutor):
    """An executor that counts the calls that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def submit(self, call: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.calls += 1
        return super().submit(call, *arguments, **keywords)


async def some(messages, count: int) -> list[bytes]:
    """Return the bodies of the next messages of an iterator."""
    return [(await anext(messages)).body for _ in range(count)]


async def rest(messages) -> list[bytes]:
    """Return the bodies of all messages until the iterator ends."""
    return [message.body async for message in messages]


async def waits(task: asyncio.Task[Any], store: forebay.aio.Store) -> None:
    """Return when a task waits for its store: it has a future among the waits."""
    while not store._waits._futures:
        assert not task.done()
        await asyncio.sleep(0)


@in_loop
async def test_the_calls_are_those_of_a_store(path):
    async with forebay.aio.open(path, default_queues=2) as store:
        topic = await store.create_topic("orders", queues=1)
        assert topic.name in await store.topics
        sent = await store.send("orders", b"a", key="1", tags="paid", properties={"region": "eu"})
        orders = store.producer("orders", queue=0)
        assert orders.topic == "orders"
        batch = await orders.send_batch([b"b", b"c"], keys=["2", "3"])
        assert (batch.count, batch.ranges) == (2, {0: range(1, 3)})
        durable = await orders.send_batch([b"d"], flush=True)
        assert durable.durable
        table = pyarrow.table({"body": [b"e"]})
        assert (await orders.send_arrow(table)).count == 1
        assert (await store.send("orders", b"f", flush=True)).durable

        message = await store.get("orders", 0, sent.offset)
        assert message == await store.message(sent.position)
        assert (message.body, message.key, message.tags) == (b"a", "1", "paid")
        read = await store.read("orders", 0, 1, max_messages=2)
        assert [message.body for message in read] == [b"b", b"c"]
        assert [message.body for message in await store.query("orders", "3")] == [b"c"]
        assert await store.offset_at("orders", 0, message.store_timestamp) == 0
        assert pyarrow.table(store.scan("orders", columns=["offset"])).num_rows == 6
        assert await store.flush() == store.durable_position
        assert (await store.stats()).messages_sent == 6
        seen: list[tuple[int, int]] = []
        verified = await store.verify(lambda done, total: seen.append((done, total)))
        assert verified.ok and seen
        assert not (await store.repair()).steps
        assert (await store.roll() is None) == (path == ":memory:")
        facts = (store.path, store.engine, store.mode, store.closed, store.damage)
        assert facts == (str(path), store.plain.engine, "a", False, [])
        assert store.recovery.clean
    assert store.closed
    with pytest.raises(forebay.StoreClosedError):
        await store.send("orders", b"late")
    await store.close()


@in_loop
async def test_what_is_awaited_opens_and_errors_are_raised_there(tmp_path):
    with pytest.raises(forebay.StoreNotFoundError):
        await forebay.aio.open(tmp_path / "none", mode="r")
    store = await forebay.aio.open(tmp_path / "store")
    with pytest.raises(forebay.UnknownTopicError):
        await store.get("orders", 0, 0)
    with pytest.raises(TypeError, match="body"):
        await store.send("orders", "text")  # type: ignore[arg-type]
    await store.close()


@in_loop
async def test_sends_that_wait_share_flushes_and_use_no_thread(tmp_path):
    # If its flush were not reported, the send would wait for longer than the test.
    async with forebay.aio.open(tmp_path / "store", flush="sync", flush_timeout=600) as store:
        orders = store.producer("orders", queue=0)
        await orders.send(b"first")
        executor = Counting()
        asyncio.get_running_loop().set_default_executor(executor)
        calls = []
        settle = store._waits._settle
        loop = asyncio.get_running_loop()
        loop.add_reader(store._waits.notices.fileno(), lambda: (calls.append(1), settle()))
        sent = await asyncio.gather(*(orders.send(b"%d" % number) for number in range(500)))
        assert executor.calls == 0
        assert all(result.durable for result in sent)
        assert [result.offset for result in sent] == list(range(1, 501))
        assert 1 <= len(calls) < 250
        assert (await store.send("orders", b"asynchronous", flush=False)).durable is False
        batch = await orders.send_batch([b"a", b"b"])
        assert batch.durable


@in_loop
async def test_sends_that_need_not_wait_use_no_thread(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        orders = store.producer("orders")
        await orders.send(b"first")
        executor = Counting()
        asyncio.get_running_loop().set_default_executor(executor)
        for number in range(100):
            await orders.send(b"%d" % number)
        assert executor.calls == 0
        # A long body is copied in a thread.
        await orders.send(bytearray(1 << 20))
        assert executor.calls == 1
        assert (await store.topics)["orders"].queues[0].max_offset == 102


@pytest.mark.parametrize("mode", ["a", "share"])
@in_loop
async def test_a_topic_is_created_and_a_queue_taken_in_a_thread(tmp_path, mode):
    """With `mode="share"` both wait for other processes."""
    executor = Counting()
    async with forebay.aio.open(tmp_path / "store", mode, default_queues=1) as store:
        asyncio.get_running_loop().set_default_executor(executor)
        orders = store.producer("orders")
        assert orders.topic == "orders" and "orders" not in store.plain.topics
        assert executor.calls == 0
        await orders.send(b"a")
        assert executor.calls == 1
        await store.send("orders", b"b")
        before = executor.calls
        await store.send("bills", b"a")
        assert executor.calls == before + 1
        own = store.producer("orders", queue="own", name="p1")
        assert own.name == "p1" and executor.calls == before + 1
        # Only one of them takes the queue.
        assert await asyncio.gather(own, *(own.send(b"c") for _ in range(10)))
        assert [len(await store.read(topic, 0, 0)) for topic in ("orders", "bills")] == [12, 1]
        own.close()
        with pytest.raises(forebay.OwnershipLostError):
            await own.send(b"d")
        unused = store.producer("orders", queue="own", name="p2")
        unused.close()
        with pytest.raises(forebay.OwnershipLostError):
            await unused.send(b"d")
        for topic, queue, name in [("", None, None), ("new", "odd", None), ("new", "own", None)]:
            with pytest.raises((forebay.InvalidTopicError, forebay.InvalidOptionError)):
                store.producer(topic, queue, name=name)


@in_loop
async def test_a_send_that_is_not_durable_in_time_says_where_it_is(tmp_path, monkeypatch):
    async with forebay.aio.open(tmp_path / "store", flush_timeout=0.001) as store:
        # No token is posted: only the timeout ends the wait.
        monkeypatch.setattr(store._waits, "_settle", lambda: None)
        loop = asyncio.get_running_loop()
        loop.remove_reader(store._waits.notices.fileno())
        producer = store.producer("orders", queue=0)
        outcomes = await asyncio.gather(
            *(producer.send(b"body", flush=True) for _ in range(20)), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, forebay.FlushTimeoutError):
                assert outcome.result.topic == "orders" and not outcome.result.durable
            else:
                assert isinstance(outcome, forebay.SendResult) and outcome.durable


@in_loop
async def test_a_cancelled_send_has_stored_its_message(tmp_path):
    async with forebay.aio.open(tmp_path / "store", default_queues=1) as store:
        sends = [asyncio.ensure_future(store.send("orders", b"a", flush=True)) for _ in range(8)]
        await asyncio.sleep(0)
        for send in sends:
            send.cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(it, asyncio.CancelledError) for it in outcomes)
        assert len(await store.read("orders", 0, 0)) == 8
        assert not store._waits._futures
        # Tokens that are posted for them later have no effect.
        assert (await store.send("orders", b"b", flush=True)).durable


@in_loop
async def test_a_tail_gives_what_is_there_and_what_comes(path):
    async with forebay.aio.open(path) as store:
        await store.producer("orders").send_batch([b"%d" % number for number in range(1000)])
        bodies = [it.body async for it in store.tail("orders", "earliest", follow=False)]
        assert bodies == [b"%d" % number for number in range(1000)]
        async with store.tail("orders") as tail:
            coming = asyncio.ensure_future(some(tail, 2))
            await waits(coming, store)
            await store.send("orders", b"one")
            await store.send("orders", b"two")
            assert await coming == [b"one", b"two"]
        begun = await store.tail("orders", "latest")
        await store.send("orders", b"three")
        assert await some(begun, 1) == [b"three"]
        with pytest.raises(forebay.UnknownTopicError):
            await store.tail("none")


@in_loop
async def test_a_cancelled_tail_loses_nothing(path):
    async with forebay.aio.open(path) as store:
        await store.create_topic("orders")
        tail = await store.tail("orders")
        for number in range(20):
            waiting = asyncio.ensure_future(some(tail, 1))
            if number % 2:
                await waits(waiting, store)
            else:
                await asyncio.sleep(0)
            sent = asyncio.ensure_future(store.send("orders", b"%d" % number))
            waiting.cancel()
            await asyncio.wait((waiting, sent))
            if waiting.cancelled():
                assert await some(tail, 1) == [b"%d" % number]
            else:
                assert waiting.result() == [b"%d" % number]


@in_loop
async def test_a_tail_ends_when_it_is_closed_and_after_its_timeout(path):
    async with forebay.aio.open(path) as store:
        await store.send("orders", b"body")
        tail = store.tail("orders", "earliest", timeout=0.01)
        assert await rest(tail) == [b"body"]
        await store.send("orders", b"next")
        assert await rest(tail) == [b"next"]
        async with store.tail("orders") as waiting:
            ending = asyncio.ensure_future(rest(waiting))
            await waits(ending, store)
        assert await ending == []


@in_loop
async def test_a_poll_is_woken_by_what_comes_back(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.send("orders", b"body")
        one = await store.consumer("orders", group="billing")
        other = store.consumer(iter(["orders"]), group="billing")
        assert (other.group, other.topics) == (one.group, one.topics) == ("billing", ("orders",))
        await other
        taken = [consumer for consumer in (one, other) if await consumer.poll(timeout=0)]
        (heir,) = {one, other} - set(taken)
        polling = asyncio.ensure_future(heir.poll())
        await waits(polling, store)
        await taken[0].close()
        (message,) = await polling
        assert message.body == b"body"


@in_loop
async def test_two_tasks_share_a_tail(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.create_topic("orders")
        tail = await store.tail("orders")
        both = [asyncio.ensure_future(some(tail, 50)) for _ in range(2)]
        await waits(both[0], store)
        for number in range(100):
            await store.send("orders", b"%d" % number)
        got = await asyncio.gather(*both)
        assert sorted(int(body) for part in got for body in part) == list(range(100))


@in_loop
async def test_reprs_say_what_is_wrapped(path):
    async with forebay.aio.open(path) as store:
        consumer = store.consumer("orders", group="billing")
        shown = "<forebay.aio.Consumer that has not joined group 'billing'>"
        assert repr(consumer) == shown
        async with consumer:
            shown = '<forebay.aio.Consumer of <Consumer of ["orders"] in group "billing">>'
            assert repr(consumer) == shown
        tail = store.tail("orders")
        assert repr(tail) == "<forebay.aio.Tail that has not begun>"
        async with tail:
            assert repr(tail) == '<forebay.aio.Tail of <Tail of "orders">>'


@in_loop
async def test_a_consumer_polls_settles_and_leaves(path):
    async with forebay.aio.open(path, default_queues=2) as store:
        async with store.consumer("orders", group="billing") as consumer:
            polling = asyncio.ensure_future(consumer.poll(100, timeout=60))
            await waits(polling, store)
            await store.producer("orders", queue=0).send_batch([b"a", b"b", b"c", b"d"])
            one, two, three, four = await polling
            assert await consumer.poll(timeout=0) == []
            await consumer.ack(one)
            with pytest.raises(forebay.AlreadySettledError):
                await consumer.ack([one])
            await consumer.reject(two, reason="no such order")
            await consumer.nack(three, delay_level=1)
            (again,) = await consumer.poll(timeout=60)
            assert (again.body, again.reconsume_times) == (b"c", 1)
            await consumer.extend(four, 60)
            await consumer.ack([again, four])
            await consumer.commit()
            assert ("orders", 0) in await consumer.assignment
            assert sum((await consumer.lag()).values()) == 0
            await consumer.seek("latest")
        (dead,) = await store.read("%DLQ%billing", 0, 0)
        assert dead.body == b"b"
        assert {queue.topic for queue in (await store.groups)["billing"]} >= {"orders"}
        await store.reset_offsets("billing", "orders", "earliest")
        with pytest.raises(forebay.StoreClosedError):
            await consumer.poll(timeout=0)


@in_loop
async def test_iterating_acknowledges_the_previous_message(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.producer("orders").send_batch([b"%d" % number for number in range(10)])
        consumer = store.consumer("orders", group="billing", prefetch=3)
        messages = []
        async for message in consumer:
            messages.append(message)
            if len(messages) == 5:
                break
        gc.collect()
        rest = await consumer.poll(100, timeout=60)
        # The fifth is unsettled, and what was taken ahead is delivered at once.
        bodies = [message.body for message in messages + rest]
        assert bodies == [b"%d" % number for number in range(10)]
        for message in messages[:4]:
            with pytest.raises(forebay.AlreadySettledError):
                await consumer.ack(message)
        await consumer.ack(messages[4])
        await consumer.close()


@in_loop
async def test_settling_does_not_block_the_loop_while_another_process_changes_owners(tmp_path):
    """The loop stood still until that process was done, for up to five seconds."""
    path = tmp_path / "store"
    async with (
        forebay.aio.open(path, mode="share", default_queues=1) as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        await store.producer("orders").send_batch([b"a", b"b"])
        first, second = await consumer.poll(2, timeout=60)
        with held(None, path, "lock", {"forebay.groups": AT_OWNERS}):
            begin_again(path)
            settling = [
                asyncio.ensure_future(consumer.ack([first])),
                asyncio.ensure_future(consumer.extend(second, 60)),
            ]
            await asyncio.sleep(0)
            assert not any(task.done() for task in settling)
        for task in settling:
            with pytest.raises((forebay.OwnershipLostError, forebay.BusyError)):
                await task
        assert len(await consumer.poll(2, timeout=60)) > 0


@in_loop
async def test_iterating_does_not_block_the_loop_while_another_process_changes_owners(tmp_path):
    path = tmp_path / "store"
    async with (
        forebay.aio.open(path, mode="share", default_queues=1) as store,
        store.consumer("orders", group="billing") as consumer,
    ):
        await store.producer("orders").send_batch([b"a", b"b"])
        messages = aiter(consumer)
        assert await some(messages, 1) == [b"a"]
        with held(None, path, "lock", {"forebay.groups": AT_OWNERS}):
            begin_again(path)
            next_one = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            assert not next_one.done()
        with pytest.raises((forebay.OwnershipLostError, forebay.BusyError)) as raised:
            await next_one
        if raised.type is forebay.BusyError:
            # The next step acknowledges the message again.
            with pytest.raises(forebay.OwnershipLostError):
                await anext(messages)
        assert await some(messages, 1) == [b"a"]


@in_loop
async def test_a_cancelled_poll_gives_its_messages_back(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.producer("orders").send_batch([b"%d" % number for number in range(100)])
        consumer = await store.consumer("orders", group="billing")
        for _ in range(20):
            polling = asyncio.ensure_future(consumer.poll(100))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
        assert len(await consumer.poll(1000, timeout=0)) == 100
        # One that waits has taken nothing.
        polling = asyncio.ensure_future(consumer.poll(100))
        await waits(polling, store)
        polling.cancel()
        await asyncio.wait((polling,))
        assert not store._waits._futures
        await store.send("orders", b"last")
        assert len(await consumer.poll(timeout=60)) == 1


@in_loop
async def test_a_cancelled_iteration_keeps_what_it_has_taken(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.create_topic("orders")
        messages = aiter(store.consumer("orders", group="billing"))
        for number in range(10):
            waiting = asyncio.ensure_future(some(messages, 1))
            await asyncio.sleep(0)
            await store.send("orders", b"%d" % number)
            waiting.cancel()
            await asyncio.wait((waiting,))
            if waiting.cancelled():
                assert await some(messages, 1) == [b"%d" % number]


@pytest.mark.parametrize("flush", ["sync", "async"])
@in_loop
async def test_closing_ends_all_waits_and_leaves_no_thread(path, flush):
    gc.collect()
    before = threads()
    store = await forebay.aio.open(path, flush=flush)
    await store.send("orders", b"body", flush=True)
    tail, consumer = store.tail("orders"), store.consumer("orders", group="billing")
    await consumer.poll()
    tasks = [asyncio.ensure_future(it) for it in (rest(tail), consumer.poll())]
    while len(store._waits._futures) < 2:
        await asyncio.sleep(0)
    # A thread gives itself its name once it runs.
    while "forebay-watch" not in threads():
        await asyncio.sleep(0)
    await store.close()
    # A tail ends, as outside of a loop.
    assert await tasks[0] == []
    with pytest.raises(forebay.StoreClosedError):
        await tasks[1]
    # A thread that was joined leaves the list a moment later.
    while threads() != before:
        await asyncio.sleep(0)


@in_loop
async def test_a_consumer_that_is_closed_ends_its_polls(path):
    async with forebay.aio.open(path) as store:
        consumer = await store.consumer("orders", group="billing")
        polling = asyncio.ensure_future(consumer.poll())
        await waits(polling, store)
        await consumer.close()
        with pytest.raises(forebay.StoreClosedError):
            await polling


@in_loop
async def test_a_consumer_that_is_closed_before_it_has_joined_keeps_no_queue(path):
    async with forebay.aio.open(path, default_queues=1) as store:
        await store.create_topic("orders")
        # One task has not begun; of the others the thread joins meanwhile, or has joined.
        for begun in range(4):
            consumer = store.consumer("orders", group="billing")
            polling = asyncio.ensure_future(consumer.poll())
            for _ in range(begun):
                await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(forebay.StoreClosedError, match="the consumer is closed"):
                await polling
            assert all(queue.owner is None for queue in (await store.groups).get("billing", []))
        closed = store.consumer("orders", group="billing")
        await closed.close()
        with pytest.raises(forebay.StoreClosedError):
            await closed
        await store.send("orders", b"x")
        async with store.consumer("orders", group="billing") as other:
            assert len(await other.poll()) == 1


@in_loop
async def test_a_cancelled_check_stops(tmp_path):
    async with forebay.aio.open(tmp_path / "store") as store:
        await store.producer("orders").send_batch([bytes(1000)] * 20_000)
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        reports: list[tuple[int, int]] = []
        cancelled = threading.Event()

        def report(done: int, total: int) -> None:
            reports.append((done, total))
            loop.call_soon_threadsafe(begun.set)
            # The check goes on once it has been cancelled.
            cancelled.wait(60)

        checking = asyncio.ensure_future(store.verify(report))
        await begun.wait()
        checking.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await checking
        assert all(done < total for done, total in reports)
        assert (await store.verify(report)).ok
        assert reports[-1][0] == reports[-1][1]


@in_loop
async def test_a_cancelled_opening_closes_the_store(tmp_path):
    for _ in range(5):
        opening = asyncio.ensure_future(forebay.aio.open(tmp_path / "store")._open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    async with forebay.aio.open(tmp_path / "store") as store:
        assert not store.closed


def test_a_store_serves_each_loop_through_an_object_of_its_own(path):
    with forebay.open(path) as plain:
        first: list[forebay.aio.Store] = []

        async def begin() -> None:
            first.append(forebay.aio.Store(plain))
            await first[0].send("orders", b"a", flush=True)

        async def go_on() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                await first[0].flush()
            with pytest.raises(RuntimeError, match="another event loop"):
                await first[0].close()
            second = forebay.aio.Store(plain)
            assert [it.body async for it in second.tail("orders", "earliest", False)] == [b"a"]

        asyncio.run(begin())
        asyncio.run(go_on())


@in_loop
async def test_a_reader_follows_a_writer(tmp_path):
    async with forebay.aio.open(tmp_path / "store") as writer:
        sent = await writer.send("orders", b"before")
        # A reader sees what is dispatched.
        assert len(await writer.read("orders", sent.queue, 0)) == 1
        async with forebay.aio.open(tmp_path / "store", mode="r") as reader:
            tail = await reader.tail("orders")
            coming = asyncio.ensure_future(some(tail, 1))
            await waits(coming, reader)
            await writer.send("orders", b"after")
            assert await coming == [b"after"]
            with pytest.raises(forebay.ReadOnlyError):
                await reader.send("orders", b"body")


@in_loop
async def test_a_store_in_use_does_not_block_the_loop(path):
    """The loop goes round while a poll, a tail and a read are under way."""
    async with forebay.aio.open(path) as store:
        await store.send("orders", b"body")
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        consumer = await store.consumer("orders", group="billing")
        await consumer.poll(timeout=60)
        waiting = asyncio.ensure_future(consumer.poll(timeout=0.2))
        assert await waiting == []
        assert rounds > 10
        counting.cancel()
