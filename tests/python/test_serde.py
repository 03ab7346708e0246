"""Values instead of bytes: every library, producers, consumers, and what cannot be decoded."""

import dataclasses
import enum
import sys
from typing import Annotated

import pyarrow
import pydantic
import pytest
from meanings import MEANINGS

import forebay
import forebay.hooks
import forebay.serde
import forebay.testing

VALUES = [
    {"fruit": "\N{GREEN APPLE}", "count": 3, "price": 0.5, "sold": True, "by": None, "tags": []},
    [1, -(2**63), "", {}],
    "text",
    7,
    None,
]


@pytest.fixture(params=["orjson", "msgspec", "json"])
def as_json(request, monkeypatch):
    """Return a serde of JSON by a library, as if those before it were not installed."""
    libraries = ["orjson", "msgspec", "json"]
    for missing in libraries[: libraries.index(request.param)]:
        monkeypatch.setitem(sys.modules, missing, None)
    return forebay.serde.json()


@pytest.fixture(params=["msgspec", "msgpack"])
def as_msgpack(request, monkeypatch):
    if request.param == "msgpack":
        monkeypatch.setitem(sys.modules, "msgspec", None)
    return forebay.serde.msgpack()


@pytest.mark.parametrize("value", VALUES)
def test_libraries_of_json_agree(as_json, value):
    data = as_json.dumps(value)
    assert data == forebay.serde.json().dumps(value)
    assert b" " not in data
    assert as_json.loads(data) == value
    assert as_json.loads(b" " + data + b"\n") == value


class Limit(enum.Enum):
    NONE = float("inf")


@dataclasses.dataclass
class Price:
    amount: float | None


NAN = float("nan")


@pytest.mark.parametrize(
    "value",
    [
        *(NAN, float("inf"), -float("inf"), [None, [NAN]], {"a": {"b": (1.0, NAN)}}),
        *(Price(NAN), {"prices": [Price(1.0), Price(NAN)]}, Limit.NONE),
    ],
    ids=str,
)
def test_a_float_that_is_not_finite_is_not_sent_as_null(as_json, value):
    """Orjson and msgspec write null for it, so that it would come back as another value."""
    with pytest.raises((ValueError, TypeError)):
        as_json.dumps(value)


def test_none_is_sent_as_null_by_every_library(as_json):
    assert as_json.dumps([None, {"a": None, "b": 0.25, "c": "null"}, 0.5]) == (
        b'[null,{"a":null,"b":0.25,"c":"null"},0.5]'
    )


@pytest.mark.parametrize("library", ["orjson", "msgspec"])
def test_none_within_the_types_of_a_library_is_sent_as_null(monkeypatch, library):
    if library == "msgspec":
        monkeypatch.setitem(sys.modules, "orjson", None)
    as_json = forebay.serde.json()
    assert as_json.dumps([Price(None), Price(0.5)]) == b'[{"amount":null},{"amount":0.5}]'


@pytest.mark.parametrize("value", VALUES)
def test_libraries_of_msgpack_agree(as_msgpack, value):
    assert as_msgpack.loads(as_msgpack.dumps(value)) == value


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"1 2", b"[" * 100_000, b'"\xed\xa0\x80"'])
def test_what_is_not_json_is_one_error(as_json, body):
    with pytest.raises(forebay.serde.DecodeError, match=r"the body cannot be decoded: .") as caught:
        as_json.loads(body)
    assert isinstance(caught.value, forebay.ForebayError | ValueError)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("body", ["{}", 1, None])
def test_what_is_no_body_is_a_type_error(as_json, body):
    with pytest.raises(TypeError, match="body must be bytes or a Message, got "):
        as_json.loads(body)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x92\x01", b"\x01\x01"])
def test_what_is_not_msgpack_is_one_error(as_msgpack, body):
    with pytest.raises(forebay.serde.DecodeError):
        as_msgpack.loads(body)


class Order(pydantic.BaseModel):
    fruit: str
    count: int


def test_a_model_is_checked(store):
    orders = forebay.serde.pydantic(Order)
    sent = orders.producer(store.producer("orders")).send(Order(fruit="apple", count=3))
    message = store.get("orders", sent.queue, sent.offset)
    assert message.body == b'{"fruit":"apple","count":3}'
    assert orders.loads(message) == Order(fruit="apple", count=3)
    with pytest.raises(forebay.serde.DecodeError, match="count"):
        orders.loads(b'{"fruit": "apple", "count": "many"}')
    assert forebay.serde.pydantic(list[int]).loads(b"[1, 2]") == [1, 2]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "three"),
        (Order, {"fruit": "apple"}),
        (Order, Order.model_construct(fruit="apple", count="many")),
        (list[Annotated[int, pydantic.Field(gt=0)]], [1, 0]),
    ],
    ids=["type", "missing", "instance", "bound"],
)
def test_what_is_not_of_the_type_is_not_sent(store, kind, value):
    orders = forebay.serde.pydantic(kind).producer(store.producer("orders", queue=0))
    for send in (orders.send, orders.send_nowait):
        with pytest.raises(ValueError, match=r"int|count"):
            send(value)
    for send in (orders.send_batch, orders.send_batch_nowait):
        with pytest.raises(ValueError, match=r"int|count"):
            send([value])
    assert "orders" not in store.topics or store.topics["orders"].queues[0].max_offset == 0


class Weight(pydantic.BaseModel):
    grams: float
    unit: str | None = None


def test_pydantic_sends_no_float_that_is_not_finite_as_null():
    weights = forebay.serde.pydantic(Weight)
    assert weights.dumps(Weight(grams=1.5)) == b'{"grams":1.5,"unit":null}'
    for kind, value in (
        (float, NAN),
        (Weight, Weight(grams=NAN)),
        (dict[str, list[Weight | None]], {"a": [None, Weight(grams=-NAN)]}),
    ):
        with pytest.raises(ValueError, match="a float that is not finite cannot be"):
            forebay.serde.pydantic(kind).dumps(value)


def test_a_model_chooses_how_floats_that_are_not_finite_are_written():
    class Chosen(Weight, ser_json_inf_nan="constants"):
        pass

    weights = forebay.serde.pydantic(Chosen)
    sent = Chosen(grams=float("inf"))
    assert weights.loads(weights.dumps(sent)) == sent


def test_a_value_that_pydantic_converts_is_sent_as_its_type():
    assert forebay.serde.pydantic(int).dumps("3") == b"3"
    sent = {"fruit": "apple", "count": "3"}
    assert forebay.serde.pydantic(Order).dumps(sent) == b'{"fruit":"apple","count":3}'


def test_a_model_with_aliases_is_sent_as_it_is_read():
    class Shipment(pydantic.BaseModel):
        crate_count: int = pydantic.Field(alias="crateCount")

    shipments = forebay.serde.pydantic(Shipment)
    sent = Shipment(crateCount=3)
    assert shipments.dumps(sent) == b'{"crateCount":3}'
    assert shipments.loads(shipments.dumps(sent)) == sent


@pytest.mark.parametrize("kind", [5, object(), pydantic.TypeAdapter(int)], ids=type)
def test_what_is_no_type_is_a_type_error(kind):
    with pytest.raises(TypeError, match="kind must be a model or a type"):
        forebay.serde.pydantic(kind)


def test_reprs_say_what_is_wrapped(store):
    serde = forebay.serde.Serde(str.encode, bytes.decode)
    assert repr(serde) == "Serde(str.encode, bytes.decode)"
    plain = store.producer("orders")
    assert repr(serde.producer(plain)) == f"<forebay.serde.Producer of {plain!r} by {serde!r}>"
    with store.consumer("orders", group="billing") as consumer:
        shown = f"<forebay.serde.Consumer of {consumer!r} by {serde!r}>"
        assert repr(serde.consumer(consumer)) == shown


def test_a_missing_library_names_the_extra(monkeypatch):
    for name in ("msgspec", "msgpack", "pydantic"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"needs msgpack: pip install 'forebay\[serde\]'"):
        forebay.serde.msgpack()
    with pytest.raises(ImportError, match=r"forebay\[serde\]"):
        forebay.serde.pydantic(Order)


def test_a_producer_sends_values_with_the_fields_of_messages(store):
    orders = forebay.serde.json().producer(store.producer("orders", queue=0))
    assert orders.topic == "orders"
    orders.send({"n": 0}, key="a", tags="t", properties={"p": "q"}, flush=True)
    orders.send_nowait({"n": 1}, keys=["b"]).result()
    assert orders.send_batch([{"n": 2}, {"n": 3}], keys=["c", "d"], atomic=True).count == 2
    orders.send_batch_nowait(({"n": n} for n in (4, 5)), tags="u").result()
    messages = store.read("orders", 0, 0).messages
    loads = forebay.serde.json().loads
    assert [loads(message)["n"] for message in messages] == [0, 1, 2, 3, 4, 5]
    assert [message.key for message in messages] == ["a", "b", "c", "d", None, None]
    assert (messages[0].tags, messages[0].properties) == ("t", {"p": "q"})
    with pytest.raises(TypeError):
        orders.send({1, 2})
    assert store.topics["orders"].queues[0].max_offset == 6


@pytest.mark.parametrize("name", ["value", "body"])
def test_a_producer_sends_the_values_of_a_table(store, name):
    def stamp(_topic, properties):
        properties["by"] = "hook"

    serde = forebay.serde.json()
    hooked = forebay.hooks.producer(store.producer("orders", queue=0), stamp)
    values = [{"n": 1, "of": ["a"]}, {"n": 2, "of": []}, None]
    table = pyarrow.table({"key": ["a", "b", "c"], name: values})
    assert serde.producer(hooked).send_arrow(table, atomic=True, flush=True).count == 3
    assert serde.producer(hooked).send_arrow(table.to_reader(max_chunksize=1)).count == 3
    messages = store.read("orders", 0, 0).messages
    assert [serde.loads(message) for message in messages] == 2 * values
    assert [message.key for message in messages] == 2 * ["a", "b", "c"]
    assert all(message.properties == {"by": "hook"} for message in messages)


def test_a_table_with_a_value_that_cannot_be_encoded_is_not_sent(store):
    plain = store.producer("orders", queue=0)
    numbers = forebay.serde.pydantic(int).producer(plain)
    rows = pyarrow.table({"value": ["1", "two"]}).to_reader(max_chunksize=1)
    with pytest.raises(ValueError, match="two"):
        numbers.send_arrow(rows)
    text = forebay.serde.Serde(str, bytes.decode).producer(plain)
    with pytest.raises(TypeError, match="bytes-like"):
        text.send_arrow(pyarrow.table({"value": ["a"]}))
    for data in (None, pyarrow.table({"key": ["a"]}), pyarrow.table({"body": [1], "value": [1]})):
        with pytest.raises((forebay.InvalidOptionError, TypeError)) as expected:
            plain.send_arrow(data)
        with pytest.raises(expected.type):
            numbers.send_arrow(data)
    assert store.topics["orders"].queues[0].max_offset == 0


@pytest.fixture
def mixed(store):
    """Return a store with three values and a body that is not JSON among them."""
    store.producer("orders", queue=0).send_batch([b"1", b"broken", b"2", b"3"])
    return store


def dead(store):
    topic = MEANINGS[store.engine].dead_letters("billing")
    tail = store.tail(topic, start="earliest", follow=False)
    return [(message.body, message.properties["FOREBAY_REASON"]) for message in tail]


def test_what_cannot_be_decoded_goes_to_the_dead_letters(mixed, caplog):
    with mixed.consumer("orders", group="billing") as consumer:
        received = forebay.serde.json().consumer(consumer).poll(timeout=0)
        assert [one.value for one in received] == [1, 2, 3]
        consumer.ack(one.message for one in received)
        assert consumer.lag() == dict.fromkeys(consumer.assignment, 0)
    ((body, reason),) = dead(mixed)
    assert body == b"broken"
    assert reason.startswith("the body cannot be decoded: ")
    assert "topic orders queue 0 offset 1: the body cannot be decoded" in caplog.text


@pytest.mark.parametrize("error", [MemoryError, OSError(24, "Too many open files")])
def test_a_lack_of_memory_or_descriptors_rejects_no_message(store, error):
    def loads(body):
        raise error

    store.send("orders", b"1")
    with store.consumer("orders", group="billing") as plain:
        consumer = forebay.serde.Serde(lambda value: value, loads).consumer(plain)
        with pytest.raises((MemoryError, OSError)):
            consumer.poll()
    assert list(store.topics) == ["orders"]


def test_iteration_and_run_decode(mixed, caplog):
    as_json = forebay.serde.json()
    with mixed.consumer("orders", group="billing", prefetch=1) as consumer:
        values = as_json.consumer(consumer)
        assert [one.value for one, _ in zip(values, range(2), strict=False)] == [1, 2]
    with mixed.consumer("orders", group="stock") as consumer:
        seen = []

        def handle(value, message):
            seen.append((value, message.offset))
            if value == 3:
                consumer.close()

        as_json.consumer(consumer).run(handle)
    assert seen == [(1, 0), (2, 2), (3, 3)]
    assert len(dead(mixed)) == 1


def test_rejection_can_be_turned_off(mixed):
    with mixed.consumer("orders", group="billing") as consumer:
        values = forebay.serde.json().consumer(consumer, reject=False)
        with pytest.raises(forebay.serde.DecodeError):
            values.poll(timeout=0)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_consumer_of_values_settles_and_closes_as_the_one_within(store, hooked):
    """The wrapper had neither: one settled messages, and closed, by the consumer within."""
    as_json = forebay.serde.json()
    with as_json.producer(store.producer("orders", queue=0)) as orders:
        orders.send_batch([0, 1, 2, 3, 4])
    plain = store.consumer("orders", group="billing")
    within = forebay.hooks.consumer(plain, lambda message: None) if hooked else plain
    with as_json.consumer(within) as consumer:
        assert (consumer.group, consumer.topics) == ("billing", ("orders",))
        assert consumer.assignment == plain.assignment
        received = consumer.poll(timeout=0)
        assert [one.value for one in received] == [0, 1, 2, 3, 4]
        consumer.ack(received[0])
        consumer.ack([received[1], received[2].message])
        consumer.extend(received[3], 60)
        consumer.ack(iter(received[3:4]))
        consumer.reject(received[4], reason="too many")
        for settle in (consumer.ack, consumer.nack, consumer.reject):
            with pytest.raises(forebay.AlreadySettledError):
                settle(received[4])
        with pytest.raises(TypeError, match="messages must be"):
            consumer.ack(17)
        assert consumer.lag()["orders", 0] == 0
        consumer.commit()
        consumer.seek({("orders", 0): 4})
        (again,) = consumer.poll(timeout=10)
        assert again.value == 4
        consumer.nack(again, delay_level=18)
        with pytest.raises(forebay.AlreadySettledError):
            plain.ack(again.message)
    assert dead(store) == [(b"4", "too many")]
    consumer.close()
    for closed in (consumer, plain):
        with pytest.raises(forebay.StoreClosedError):
            closed.poll(timeout=0)


def test_a_producer_of_values_gives_up_the_queue_of_the_one_within(tmp_path):
    with forebay.open(tmp_path / "store", "share") as store:
        plain = store.producer("orders", "own", name="till-1")
        within = forebay.hooks.producer(plain, lambda topic, properties: None)
        with forebay.serde.json().producer(within) as orders:
            assert orders.name == within.name == plain.name == "till-1"
            orders.send(1)
        for closed in (lambda: orders.send(2), lambda: within.send(b"2"), lambda: plain.send(b"2")):
            with pytest.raises(forebay.OwnershipLostError):
                closed()
