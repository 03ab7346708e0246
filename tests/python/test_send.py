"""Sending: messages come back as sent, from the place that the result names."""

import gc
import mmap
from datetime import UTC, datetime, timedelta

import numpy
import pyarrow
import pytest

import forebay


def test_a_message_comes_back_as_it_was_sent(store):
    born = datetime(2024, 5, 1, 12, 30, 15, 123000, tzinfo=UTC)
    result = store.send(
        "orders",
        b"body",
        keys=["42", "a"],
        tags="paid",
        properties={"region": "eu", "zone": "1"},
        queue=3,
        timestamp=born,
    )
    message = store.get("orders", queue=3, offset=0)
    assert (result.topic, result.queue, result.offset) == ("orders", 3, 0)
    assert (message.topic, message.queue, message.offset) == ("orders", 3, 0)
    assert (message.position, message.message_id) == (result.position, result.message_id)
    assert message.body == message.stored_body == bytes(memoryview(message)) == b"body"
    assert (message.keys, message.key, message.tags) == (("42", "a"), "42", "paid")
    assert message.properties == {"region": "eu", "zone": "1"}
    assert message.headers == (("region", b"eu"), ("zone", b"1"))
    assert message.system_properties == {}
    assert message.born_time == born
    assert message.born_timestamp == int(born.timestamp() * 1000)
    assert message.store_timestamp == result.timestamp
    assert message.store_time == datetime.fromtimestamp(0, UTC) + timedelta(
        milliseconds=result.timestamp
    )
    assert (message.flag, message.sys_flag & ~0x30, message.reconsume_times) == (0, 0, 0)
    assert message.size > len(b"body")
    assert message.store_host.endswith(":0")


def test_properties_of_a_message_can_be_sent_again(store):
    store.send("orders", b"x", key="k", properties={"region": "eu"}, queue=0)
    first = store.get("orders", 0, 0)
    store.send("orders", first.body, keys=first.keys, properties=first.properties, queue=0)
    second = store.get("orders", 0, 1)
    assert (second.body, second.keys, second.properties) == (b"x", ("k",), {"region": "eu"})


@pytest.mark.parametrize(
    "body",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"xx12345678xx")[2:10],
        numpy.frombuffer(b"12345678", dtype=numpy.int32),
        numpy.frombuffer(b"12345678", dtype=numpy.float64).reshape(1, 1),
        pyarrow.py_buffer(b"12345678"),
    ],
    ids=["bytes", "bytearray", "memoryview", "int32", "float64", "arrow"],
)
def test_a_body_is_any_contiguous_buffer(store, body):
    store.send("orders", body, queue=0)
    store.producer("orders", queue=0).send_batch([body, b"", body])
    bodies = [message.body for message in store.read("orders", 0, 0)]
    assert bodies == [b"12345678", b"12345678", b"", b"12345678"]


def test_an_anonymous_map_and_a_message_are_bodies(store):
    with mmap.mmap(-1, 4096) as page:
        page[:5] = b"hello"
        store.send("orders", page, queue=0)
    store.send("orders", store.get("orders", 0, 0), queue=0)
    assert store.get("orders", 0, 1).body == b"hello" + bytes(4091)


def test_a_large_body_is_sent_detached(store):
    body = bytes(range(256)) * 4096
    assert store.send("orders", body, queue=0).offset == 0
    assert store.get("orders", 0, 0).body == body


def test_queues_are_chosen_by_argument_then_producer_then_key_then_turn(store):
    store.create_topic("orders", queues=4)
    orders = store.producer("orders", queue=2)
    assert orders.send(b"x", queue=1, key="k").queue == 1
    assert orders.send(b"x", key="k").queue == 2
    by_key = {store.send("orders", b"x", key="k").queue for _ in range(5)}
    assert len(by_key) == 1
    in_turn = [store.send("orders", b"x").queue for _ in range(8)]
    assert sorted(in_turn) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_delayed_message_waits_under_the_topic_of_the_schedule(store, meanings):
    result = store.send("orders", b"later", delay_level=3, queue=1)
    message = store.get(result.topic, result.queue, result.offset)
    assert (message.topic, message.queue) == (result.topic, result.queue) == meanings.delayed
    assert message.system_properties["REAL_TOPIC"] == "orders"
    assert message.system_properties["REAL_QID"] == "1"
    assert message.properties == {}


def test_a_batch_says_where_its_messages_went(store):
    store.create_topic("orders", queues=4)
    orders = store.producer("orders")
    orders.send(b"before", queue=1)
    keys = ["a", None, ["b", "c"], b"d"]
    result = orders.send_batch(
        [b"0", b"1", b"2", b"3"],
        keys=keys,
        tags=["t", None, "u", "t"],
        properties=[{"n": "0"}, None, {"n": "2"}, {}],
    )
    assert result.count == 4
    assert sum(len(offsets) for offsets in result.ranges.values()) == 4
    found = {}
    for queue, offsets in result.ranges.items():
        for message in store.read("orders", queue, offsets.start, max_messages=len(offsets)):
            assert message.store_timestamp == result.timestamp
            found[message.body] = (message.keys, message.tags, message.properties)
    assert found == {
        b"0": (("a",), "t", {"n": "0"}),
        b"1": ((), None, {}),
        b"2": (("b", "c"), "u", {"n": "2"}),
        b"3": (("d",), "t", {}),
    }


def test_one_tag_and_one_mapping_apply_to_a_whole_batch(store):
    orders = store.producer("orders", queue=0)
    result = orders.send_batch(iter([b"a", b"b"]), tags="t", properties={"n": "1"}, atomic=True)
    assert result.ranges == {0: range(2)}
    for message in store.read("orders", 0, 0):
        assert (message.tags, message.properties) == ("t", {"n": "1"})


def test_an_empty_batch_appends_nothing(store):
    result = store.producer("orders").send_batch([])
    assert (result.count, result.ranges) == (0, {})


def test_a_batch_above_the_size_of_a_chunk_goes_in_order(store):
    body = bytes(1 << 20)
    bodies = [body + bytes([number]) for number in range(9)]
    assert store.producer("orders", queue=0).send_batch(bodies).ranges == {0: range(9)}
    read = store.read("orders", 0, 0).messages
    assert [message.body[-1] for message in read] == list(range(9))


def test_a_refused_row_is_named_and_nothing_of_its_chunk_is_appended(store):
    orders = store.producer("orders", queue=0)
    orders.send(b"first")
    with pytest.raises(forebay.InvalidOptionError, match="row 1: ") as refused:
        orders.send_batch([b"a", b"b"], keys=["good", ["good", "with space"]])
    assert refused.value.row == 1
    assert refused.value.name == "key"
    with pytest.raises(TypeError, match="row 2: body must be bytes") as refused:
        orders.send_batch([b"a", b"b", "c"])
    assert refused.value.row == 2
    assert store.topics["orders"].queues[0].max_offset == 1


def test_tickets_are_completed(store):
    orders = store.producer("orders", queue=0)
    tickets = [orders.send_nowait(b"%d" % number, key="k") for number in range(100)]
    results = [ticket.result(timeout=timedelta(seconds=60)) for ticket in tickets]
    assert [result.offset for result in results] == list(range(100))
    assert all(result.durable for result in results)
    assert all(ticket.done() for ticket in tickets)
    assert store.get("orders", 0, 99).body == b"99"


def test_closing_completes_tickets(open_store):
    store = open_store()
    tickets = [store.producer("orders").send_nowait(b"x") for _ in range(10)]
    store.close()
    assert all(ticket.done() and ticket.result(0).durable for ticket in tickets)


def test_flush_makes_all_sent_messages_durable(store):
    result = store.send("orders", b"x", flush=False)
    assert store.flush() > result.position
    assert store.durable_position > result.position
    assert store.send("orders", b"x", flush=True).durable


def test_a_synchronous_store_returns_durable_messages(open_store):
    store = open_store(flush="sync")
    assert store.send("orders", b"x").durable
    assert store.producer("orders").send_batch([b"x", b"y"]).durable


@pytest.mark.parametrize("kind", ["send", "send_batch", "send_arrow"])
def test_a_flush_timeout_says_where_the_messages_are(tmp_path, kind):
    with forebay.open(tmp_path / "store", flush_timeout=0, default_queues=1) as store:
        orders = store.producer("orders", queue=0)

        def send_once():
            if kind == "send":
                return orders.send(b"x", flush=True)
            if kind == "send_batch":
                return orders.send_batch([b"x", b"y"], flush=True)
            return orders.send_arrow(pyarrow.table({"body": [b"x", b"y"]}), flush=True)

        def send_often():
            for _ in range(1000):
                send_once()

        with pytest.raises(forebay.FlushTimeoutError) as error:
            send_often()
        result = error.value.result
        assert not result.durable
        last = result.offset if kind == "send" else result.ranges[0][-1]
        assert store.get("orders", 0, last).body == (b"x" if kind == "send" else b"y")
        assert store.read("orders", 0, last).max_offset == last + 1


def test_a_producer_keeps_its_store_open(tmp_path):
    producer = forebay.open(tmp_path / "store").producer("orders")
    gc.collect()
    assert producer.send(b"x", flush=True).durable


def test_a_topic_is_not_given_fewer_queues_than_it_has(open_store):
    store = open_store(default_queues=8)
    store.create_topic("orders", queues=4)
    with pytest.raises(forebay.InvalidOptionError, match=r"queues.*1.*has 4 queues"):
        store.create_topic("orders", queues=1)
    assert store.create_topic("orders").write_queues == 4
    assert store.create_topic("orders", queues=6).write_queues == 6
    assert store.create_topic("bills").write_queues == 8


def test_producers_that_own_queues_share_them_and_a_name_keeps_its_own(tmp_path):
    with forebay.open(tmp_path, default_queues=2) as store:
        first = store.producer("orders", queue="own", name="p1")
        assert (first.name, first.send(b"1", key="any").queue) == ("p1", 0)
        with store.producer("orders", queue="own", name="p2") as second:
            assert second.send_batch([b"2"], keys=["any"]).ranges == {1: range(1)}
            with pytest.raises(forebay.InvalidOptionError, match="which it owns"):
                second.send(b"2", queue=0)
            with pytest.raises(forebay.InvalidOptionError, match=r"p1, p2.*create_topic"):
                store.producer("orders", queue="own", name="p3")
        with pytest.raises(forebay.OwnershipLostError) as lost:
            second.send(b"2")
        assert (lost.value.topic, lost.value.queue) == ("orders", 1)
        newer = store.producer("orders", "own", name="p1")
        with pytest.raises(forebay.OwnershipLostError, match="p1"):
            first.send(b"1")
        assert newer.send(b"1").offset == 1
        plain = store.producer("orders")
        plain.close()
        assert plain.name is None and plain.send(b"0")
    with forebay.open(tmp_path) as store:
        assert store.producer("orders", queue="own", name="p2").send(b"2").queue == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"queue": "own"}, "name"),
        ({"name": "p1"}, "name"),
        ({"queue": 0, "name": "p1"}, "name"),
        ({"queue": "mine", "name": "p1"}, "queue"),
        ({"queue": "own", "name": ""}, "name"),
        ({"queue": -1}, "queue"),
    ],
)
def test_wrong_owners_are_refused_by_name(store, arguments, error):
    with pytest.raises(forebay.InvalidOptionError) as caught:
        store.producer("orders", **arguments)
    assert caught.value.name == error
