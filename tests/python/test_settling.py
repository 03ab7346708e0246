"""What settling does to the other messages of a queue, and which messages can be settled."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from meanings import MEANINGS

import forebay
import forebay.testing

ENGINES = ["memory", "commitlog", "partitionlog"]
#: Engines whose records have RocketMQ's limit of properties.
LIMITED = ["memory", "commitlog"]
LIMIT = 32_767


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def clock():
    return forebay.testing.Clock()


@pytest.fixture
def store(engine, clock, tmp_path):
    path = ":memory:" if engine == "memory" else tmp_path / "store"
    with forebay.testing.open(path, engine=engine, clock=clock, default_queues=1) as store:
        yield store


def fill(store: forebay.Store, count: int) -> None:
    store.producer("orders").send_batch([str(number).encode() for number in range(count)])


def numbers(messages) -> list[int]:
    return [int(message.body) for message in messages]


# --- order ------------------------------------------------------------------------------------


def test_a_loop_over_an_ordered_queue_delivers_nothing_before_a_refused_message(store, clock):
    # It had taken the later ones ahead, and went on with them.
    fill(store, 4)
    with store.consumer("orders", group="billing", order="queue") as consumer:
        seen = []
        for message in consumer:
            seen.append(message)
            if numbers(seen) == [0, 1]:
                consumer.nack(message)
                clock.advance(1)
            if len(seen) == 5:
                break
        assert numbers(seen) == [0, 1, 1, 2, 3]


def test_what_a_loop_had_taken_ahead_waits_for_the_message_that_it_refused(store, clock):
    fill(store, 4)
    with store.consumer("orders", group="billing", order="queue") as consumer:
        for message in consumer:
            if message.body == b"1":
                consumer.nack(message)
                break
        assert consumer.poll(timeout=0) == []
        clock.advance(1)
        assert numbers(consumer.poll(timeout=0)) == [1, 2, 3]


def test_a_delivery_that_a_loop_has_not_returned_is_no_attempt(store, clock):
    fill(store, 2)
    with store.consumer("orders", group="billing", order="queue", retry_in_place=2) as consumer:
        messages = iter(consumer)
        consumer.nack(next(messages))
        clock.advance(1)
        assert numbers([next(messages)]) == [0]
        consumer.nack(next(messages))
        clock.advance(1)
        assert numbers(consumer.poll(timeout=0)) == [1]
        assert MEANINGS[store.engine].dead_letters("billing") not in store.topics


def test_a_message_that_was_taken_back_can_be_refused_and_nothing_else(store, clock):
    fill(store, 3)
    with store.consumer("orders", group="billing", order="queue") as consumer:
        first, second, third = consumer.poll(timeout=0)
        consumer.nack(first)
        for call, arguments in [("ack", ()), ("reject", ()), ("extend", (0.1,))]:
            with pytest.raises(forebay.OwnershipLostError, match="taken back"):
                getattr(consumer, call)(second, *arguments)
        consumer.nack(third)
        clock.advance(0.5)
        assert consumer.poll(timeout=0) == []
        clock.advance(0.5)
        assert numbers(consumer.poll(timeout=0)) == [0, 1, 2]


def test_what_follows_a_message_that_timed_out_cannot_be_kept(store, clock):
    fill(store, 2)
    with store.consumer("orders", group="billing", order="queue") as consumer:
        _, second = consumer.poll(timeout=0)
        clock.advance(minutes=15)
        (again,) = consumer.poll(1, timeout=0)
        with pytest.raises(forebay.OwnershipLostError):
            consumer.extend(second, 60)
        consumer.ack(again)
        assert numbers(consumer.poll(timeout=0)) == [1]


# --- whose message it is ----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["ack", "nack", "reject", "extend"])
def test_a_message_of_another_store_is_refused(store, clock, call):
    fill(store, 1)
    with forebay.testing.open(clock=clock, default_queues=1) as other:
        fill(other, 1)
        with (
            store.consumer("orders", group="billing") as consumer,
            other.consumer("orders", group="billing") as owner,
        ):
            assert consumer.poll(timeout=0)
            (message,) = owner.poll(timeout=0)
            arguments = (60,) if call == "extend" else ()
            topics = list(store.topics)
            with pytest.raises(forebay.OwnershipLostError):
                getattr(consumer, call)(message, *arguments)
            assert list(store.topics) == topics
            assert owner.lag() == consumer.lag() == {("orders", 0): 1}
            owner.ack(message)


# --- damage -----------------------------------------------------------------------------------


def damage(store: forebay.Store, body: bytes) -> None:
    """Overwrite a body in the file of a commit log."""
    (path,) = Path(store.path, "commitlog").iterdir()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as log:
        begin = log.find(body)
        log[begin : begin + len(body)] = bytes(len(body))


@pytest.mark.parametrize("engine", ["commitlog"], indirect=True)
@pytest.mark.parametrize("call", ["nack", "reject"])
def test_a_message_that_was_damaged_since_its_delivery_is_not_copied(store, clock, call):
    # The copy had a checksum that fitted the damage.
    store.send("orders", b"its body")
    fill(store, 1)
    with store.consumer("orders", group="billing") as consumer:
        message, other = consumer.poll(timeout=0)
        damage(store, b"its body")
        topics = list(store.topics)
        with pytest.raises(forebay.CorruptError):
            getattr(consumer, call)(message)
        assert list(store.topics) == topics
        (found,) = store.damage
        assert (found.kind, found.lost) == ("log", [("orders", 0, 0)])
        # It is not settled before its next delivery, which finds the damage too.
        consumer.ack(other)
        assert consumer.lag()["orders", 0] == 2
        clock.advance(minutes=15)
        assert consumer.poll(timeout=0) == []
        assert consumer.lag()["orders", 0] == 0


@pytest.mark.parametrize("engine", ["commitlog"], indirect=True)
def test_a_run_goes_on_after_a_message_that_is_damaged_meanwhile(store, caplog):
    store.send("orders", b"its body")
    fill(store, 1)
    handled = []

    def handle(message):
        handled.append(message.offset)
        if message.offset == 0:
            damage(store, b"its body")
            raise ValueError("its handler fails")
        consumer.close()

    with store.consumer("orders", group="billing") as consumer:
        consumer.run(handle)
    assert handled == [0, 1]
    assert "queue 0 offset 0 cannot be tried again: " in caplog.text


# --- properties without room ------------------------------------------------------------------


def send_largest(
    store: forebay.Store, less: int = 0, topic: str = "orders", **options
) -> dict[str, str]:
    """Send with properties of the largest size that is accepted, less so many bytes."""
    with pytest.raises(forebay.MessageTooLargeError) as error:
        store.send(topic, b"0", properties={"a": "x" * LIMIT}, **options)
    length = LIMIT - (error.value.size - error.value.limit)
    properties = {"a": "x" * (length - less)}
    store.send(topic, b"0", properties=properties, **options)
    return properties


@pytest.mark.parametrize("engine", LIMITED, indirect=True)
@pytest.mark.parametrize("less", [0, 20, 40, 100])
@pytest.mark.parametrize("call", ["nack", "reject"])
def test_a_message_without_room_for_the_properties_of_a_retry_becomes_a_dead_letter(
    store, clock, call, less
):
    # It could not be refused at all: `run` ended at it, whenever it was started.
    properties = send_largest(store, less)
    fill(store, 1)
    with store.consumer("orders", group="billing") as consumer:
        message, other = consumer.poll(timeout=0)
        consumer.ack(other)
        getattr(consumer, call)(message)
        assert consumer.lag()["orders", 0] == 0
        clock.advance(10)
        retried = consumer.poll(timeout=0)
    letters = []
    if not retried:
        letters = store.read(MEANINGS[store.engine].dead_letters("billing"), 0, 0).messages
    assert [it.body for it in [*retried, *letters]] == [b"0"]
    assert [it.properties for it in [*retried, *letters]] == [properties]
    assert bool(retried) == (call == "nack" and less == 100)
    assert all(it.topic == "orders" for it in retried)


@pytest.mark.parametrize("engine", LIMITED, indirect=True)
def test_a_reason_is_shortened_to_the_room_that_is_left(store):
    send_largest(store, 200)
    with store.consumer("orders", group="billing") as consumer:
        (message,) = consumer.poll(timeout=0)
        consumer.reject(message, reason="\N{EURO SIGN}" * 500)
    (letter,) = store.read(MEANINGS[store.engine].dead_letters("billing"), 0, 0).messages
    assert letter.system_properties["RETRY_TOPIC"] == "orders"
    assert letter.system_properties["ORIGIN_MESSAGE_ID"] == message.message_id
    reason = letter.properties["FOREBAY_REASON"]
    assert len(reason) > 20
    assert set(reason) == {"\N{EURO SIGN}"}


@pytest.mark.parametrize("engine", LIMITED, indirect=True)
@pytest.mark.parametrize("how", [{"delay": 1}, {"delay_level": 1}])
def test_a_delayed_message_is_accepted_only_with_the_room_that_its_delivery_takes(
    store, clock, how
):
    # It stayed the first in line, and none after it was delivered.
    for _ in range(100):
        # The offset of the next one has three digits, and takes more room than the names of a
        # topic of one letter and its queue leave.
        store.send("t", b"", delay=0)
    clock.advance(0)
    properties = send_largest(store, topic="t", **how)
    store.send("t", b"1", **how)
    clock.advance(1)
    got = store.read("t", 0, 100).messages
    assert [message.body for message in got] == [b"0", b"1"]
    assert got[0].properties == properties
    stated = got[0].system_properties.get("FOREBAY_DELAY_OFFSET")
    assert stated == ("100" if "delay" in how else None)


# --- options and errors -----------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.0005, 0.000_999])
def test_a_visibility_timeout_below_a_millisecond_is_refused(timeout):
    # It became 0: one poll returned a message several times.
    with forebay.open(":memory:") as store:
        with pytest.raises(forebay.InvalidOptionError, match=r"at least 1 millisecond, got 0"):
            store.consumer("orders", group="billing", visibility_timeout=timeout)
        store.consumer("orders", group="billing", visibility_timeout=0.001).close()


def test_an_offset_out_of_range_names_the_next_offset_which_is_accepted(store):
    fill(store, 5)
    store.consumer("orders", group="billing", start={("orders", 0): 5}).close()
    has = "the queue has messages 0 to 4, and 5 is its next offset"
    with pytest.raises(forebay.OffsetOutOfRangeError, match=has):
        store.consumer("orders", group="other", start={("orders", 0): 6})
    with pytest.raises(forebay.OffsetOutOfRangeError, match=has):
        store.reset_offsets("billing", "orders", {0: 6})
    store.create_topic("empty", queues=1)
    with pytest.raises(forebay.OffsetOutOfRangeError, match="no messages, and 0 is its next"):
        store.get("empty", 0, 0)


@pytest.mark.parametrize("how", ["timeout", "reset"])
def test_an_error_of_ownership_says_what_may_have_happened(store, clock, how):
    # It named another consumer, of which there was none.
    fill(store, 1)
    with store.consumer("orders", group="billing") as consumer:
        (message,) = consumer.poll(timeout=0)
        if how == "reset":
            store.reset_offsets("billing", "orders", "earliest")
        else:
            clock.advance(minutes=15)
            assert consumer.poll(timeout=0)
        told = "does not hold .* it timed out, was taken back or reset"
        with pytest.raises(forebay.OwnershipLostError, match=told):
            consumer.ack(message)
