"""Hooks around sends and handling: what they add, surround and break; traces across messages."""

import contextlib
import sys

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import forebay
import forebay.hooks
import forebay.serde


def stamp(topic, properties):
    properties["by"] = topic


def sent(store):
    return [message.properties for message in store.read("orders", 0, 0)]


def test_a_send_hook_adds_properties(store):
    orders = forebay.hooks.producer(store.producer("orders", queue=0), stamp)
    given = {"n": "1"}
    orders.send(b"a", properties=given, key="k", flush=True)
    orders.send_nowait(b"b").result()
    orders.send_batch([b"c", b"d"], properties={"n": "2"})
    orders.send_batch_nowait([b"e", b"f"], properties=[{"n": "3"}, None]).result()
    orders.send_batch([b"g"])
    assert given == {"n": "1"}
    assert orders.topic == "orders"
    assert sent(store) == [
        {"n": "1", "by": "orders"},
        {"by": "orders"},
        {"n": "2", "by": "orders"},
        {"n": "2", "by": "orders"},
        {"n": "3", "by": "orders"},
        {"by": "orders"},
        {"by": "orders"},
    ]


PAIRS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
GIVEN = [[("n", "1"), ("by", "me")], None, []]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.map_(pa.string(), pa.string()), GIVEN),
        (PAIRS, [row and [{"name": n, "value": v} for n, v in row] for row in GIVEN]),
        (pa.null(), None),
        (None, None),
    ],
    ids=["map", "list", "null", "none"],
)
def test_a_send_hook_adds_properties_to_the_rows_of_a_table(store, kind, given):
    orders = forebay.hooks.producer(store.producer("orders", queue=0), stamp)
    columns = {"body": pa.array([b"a", b"b", b"c"]), "key": pa.array(["1", "2", "3"])}
    if kind is not None:
        properties = pa.array(given if given else [None] * 3, kind)
        columns = {"body": columns["body"], "properties": properties, "key": columns["key"]}
    table = pa.table(columns)
    assert orders.send_arrow(table.to_reader(max_chunksize=2), flush=True).count == 3
    assert orders.send_arrow(table.to_batches()[0], atomic=True).count == 3
    first = {"n": "1", "by": "orders"} if given else {"by": "orders"}
    assert sent(store) == 2 * [first, {"by": "orders"}, {"by": "orders"}]
    assert [message.key for message in store.read("orders", 0, 0)] == 2 * ["1", "2", "3"]


def test_a_table_is_refused_in_the_words_of_the_producer(store):
    plain = store.producer("orders", queue=0)
    orders = forebay.hooks.producer(plain, stamp)
    null = pa.table({"body": [b"a"], "properties": pa.array([[None]], PAIRS)})
    unknown = pa.table({"body": [b"a"], "nonsense": [1]})
    text = pa.table({"body": [b"a"], "properties": ["p"]})
    numbers = (
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.struct([("name", pa.string()), ("value", pa.int64())])),
        pa.list_(pa.struct([("name", pa.string())])),
    )
    mistyped = [pa.table({"body": [b"a"], "properties": pa.array([[]], kind)}) for kind in numbers]
    for data in (null, unknown, text, *mistyped, None, [b"a"]):
        with pytest.raises((forebay.InvalidOptionError, TypeError)) as expected:
            plain.send_arrow(data)
        with pytest.raises(expected.type) as refused:
            orders.send_arrow(data)
        assert str(refused.value) == str(expected.value)
    wrong = forebay.hooks.producer(plain, lambda _, properties: properties.update(n=1))
    with pytest.raises(TypeError, match="properties must be a mapping of str to str"):
        wrong.send_arrow(pa.table({"body": [b"a"]}))
    assert sent(store) == []


def test_a_hook_that_adds_nothing_leaves_a_table_as_it_is(store, monkeypatch):
    table = pa.table({"body": [b"a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    seen = []
    orders = forebay.hooks.producer(
        store.producer("orders", queue=0), lambda topic, _: seen.append(topic)
    )
    assert orders.send_arrow(table).count == 1
    assert seen == ["orders"]
    with pytest.raises(ImportError, match=r"forebay\[arrow\]"):
        forebay.hooks.producer(orders, stamp).send_arrow(table)
    assert sent(store) == [{}]


def test_reprs_say_what_is_wrapped(store):
    plain = store.producer("orders")
    shown = f"<forebay.hooks.Producer of {plain!r} with {stamp!r}>"
    assert repr(forebay.hooks.producer(plain, stamp)) == shown
    with store.consumer("orders", group="billing") as consumer:
        shown = f"<forebay.hooks.Consumer of {consumer!r} with {stamp!r}>"
        assert repr(forebay.hooks.consumer(consumer, stamp)) == shown


def test_a_hook_that_raises_sends_nothing(store):
    def refuse(topic, properties):
        raise RuntimeError("no")

    orders = forebay.hooks.producer(store.producer("orders", queue=0), refuse)
    for send in (orders.send, orders.send_nowait):
        with pytest.raises(RuntimeError, match="no"):
            send(b"a")
    with pytest.raises(RuntimeError, match="no"):
        orders.send_batch([b"a"])
    assert sent(store) == [] if "orders" in store.topics else True


def test_a_hook_cannot_hide_that_a_call_has_failed(store):
    producer = forebay.hooks.producer(
        store.producer("orders"), lambda *_: contextlib.suppress(TypeError)
    )
    for send in (producer.send, producer.send_nowait):
        with pytest.raises(TypeError):
            send(5)


def test_a_hook_surrounds_the_send(store):
    seen = []

    @contextlib.contextmanager
    def around(topic, properties):
        seen.append("begin")
        try:
            yield
        except TypeError:
            seen.append("failed")
            raise
        seen.append("end")

    orders = forebay.hooks.producer(store.producer("orders"), lambda *given: around(*given))
    orders.send(b"a")
    with pytest.raises(TypeError):
        orders.send("text")
    assert seen == ["begin", "end", "begin", "failed"]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_hook_surrounds_the_handler(store, batch, caplog):
    store.producer("orders", queue=0).send_batch([b"a", b"b"])
    seen = []

    @contextlib.contextmanager
    def around(message):
        seen.append(("begin", message.body))
        try:
            yield
        finally:
            seen.append(("end", message.body))

    with store.consumer("orders", group="billing") as plain:

        def handle(given):
            seen.append("handle")
            if batch == 2 or given.body == b"b":
                plain.close()

        forebay.hooks.consumer(plain, around).run(handle, batch=batch)
    if batch == 1:
        begins = [
            ("begin", b"a"),
            "handle",
            ("end", b"a"),
            ("begin", b"b"),
            "handle",
            ("end", b"b"),
        ]
    else:
        begins = [("begin", b"a"), ("begin", b"b"), "handle", ("end", b"b"), ("end", b"a")]
    assert seen == begins


def test_a_hook_surrounds_the_body_of_a_loop(store):
    store.producer("orders", queue=0).send_batch([b"a", b"b"])
    seen = []

    @contextlib.contextmanager
    def around(message):
        seen.append("begin")
        yield
        seen.append("end")

    with store.consumer("orders", group="billing") as plain:
        hooked = forebay.hooks.consumer(plain, around)
        for message, _ in zip(hooked, range(2), strict=False):
            seen.append(message.body)
            if message.body == b"b":
                break
    assert seen[:4] == ["begin", b"a", "end", "begin"]


def test_a_consumer_with_a_hook_settles(store, meanings):
    store.producer("orders", queue=0).send_batch([b"a", b"b", b"c"])
    with store.consumer("orders", group="billing") as plain:
        hooked = forebay.hooks.consumer(plain, lambda message: None)
        first, second, third = hooked.poll(timeout=0)
        hooked.ack(first)
        hooked.nack(second, delay_level=1)
        hooked.reject(third, reason="bad")
        assert plain.lag()["orders", 0] == 0
    (dead,) = store.tail(meanings.dead_letters("billing"), start="earliest", follow=False)
    assert dead.body == b"c"


@pytest.fixture
def traces():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("test"), exporter
    provider.shutdown()


def test_a_trace_goes_through_a_message(store, traces):
    tracer, exporter = traces
    on_send, on_consume = forebay.hooks.tracing(tracer)
    as_json = forebay.serde.json()
    orders = as_json.producer(forebay.hooks.producer(store.producer("orders", queue=0), on_send))
    with tracer.start_as_current_span("request"):
        orders.send({"n": 1}, properties={"own": "x"})
    with store.consumer("orders", group="billing") as plain:

        def handle(value, message):
            with tracer.start_as_current_span("work"):
                assert value == {"n": 1}
            plain.close()

        as_json.consumer(forebay.hooks.consumer(plain, on_consume)).run(handle)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    send, process = spans["send orders"], spans["process orders"]
    assert send.parent.span_id == spans["request"].context.span_id
    assert process.parent.span_id == send.context.span_id
    assert spans["work"].parent.span_id == process.context.span_id
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert process.attributes["messaging.destination.partition.id"] == "0"
    (properties,) = sent(store)
    assert properties["own"] == "x"
    assert properties["traceparent"].split("-")[1] == f"{send.context.trace_id:032x}"


def test_a_message_without_a_trace_begins_one(store, traces):
    tracer, exporter = traces
    _, on_consume = forebay.hooks.tracing(tracer)
    result = store.send("orders", b"a", properties={"traceparent": "nonsense"})
    with on_consume(store.get("orders", result.queue, result.offset)):
        pass
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_a_failed_send_and_a_failed_handler_are_errors_of_their_spans(store, traces):
    tracer, exporter = traces
    on_send, on_consume = forebay.hooks.tracing(tracer)
    orders = forebay.hooks.producer(store.producer("orders"), on_send)
    with pytest.raises(TypeError):
        orders.send("text")
    result = store.send("orders", b"a")
    message = store.get("orders", result.queue, result.offset)
    with pytest.raises(ValueError, match="bad"), on_consume(message):
        raise ValueError("bad")
    assert [span.status.is_ok for span in exporter.get_finished_spans()] == [False, False]
    assert isinstance(message, forebay.Message)
