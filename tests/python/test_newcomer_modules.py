"""A wrong use of each argument of the modules beside `forebay.Store`: the error names it."""

import asyncio
import inspect
import itertools
import signal

import duckdb
import numpy
import pytest
from opentelemetry.metrics import get_meter

import forebay
import forebay.aio
import forebay.archive
import forebay.console
import forebay.duckdb
import forebay.hooks
import forebay.metrics
import forebay.polars
import forebay.serde
import forebay.testing
from forebay.options import (
    BatchFields,
    ConsumerOptions,
    MessageFields,
    OpenOptions,
    Options,
    ScanOptions,
)


class Odd:
    """A value of a type that no argument takes."""


ONE, MANY, JOINING = MessageFields, BatchFields, ConsumerOptions
#: Methods of producers and consumers with hooks, with their least arguments, and the type of the
#: others.
THROUGH_HOOKS = {
    "producer.send": ({"body": b""}, ONE),
    "producer.send_nowait": ({"body": b""}, ONE),
    "producer.send_batch": ({"bodies": [b""]}, MANY),
    "producer.send_batch_nowait": ({"bodies": [b""]}, MANY),
    "producer.send_arrow": ({"data": None}, None),
    "consumer.poll": ({"timeout": 0}, None),
    "consumer.run": ({"handler": print}, None),
}
#: Methods that only call the consumer within: settling, and moving in the queues.
SETTLING = {
    "consumer.ack": ({"messages": []}, None),
    "consumer.nack": ({"message": "message"}, None),
    "consumer.reject": ({"message": "message"}, None),
    "consumer.extend": ({"message": "message", "seconds": 1}, None),
    "consumer.seek": ({"to": "latest"}, None),
}
#: The same for producers and consumers of a serde; any value may be sent.
BY_SERDE = {
    "producer.send": ({"value": 1}, ONE),
    "producer.send_nowait": ({"value": 1}, ONE),
    "producer.send_batch": ({"values": [1]}, MANY),
    "producer.send_batch_nowait": ({"values": [1]}, MANY),
    "producer.send_arrow": ({"data": None}, None),
    "consumer.poll": ({"timeout": 0}, None),
    "consumer.run": ({"handler": print}, None),
}
#: The same for methods that are awaited.
AWAITED = {
    "store.send": ({"topic": "orders", "body": b"x"}, ONE),
    "store.producer": ({"topic": "orders"}, None),
    "store.consumer": ({"topics": "orders", "group": "other"}, JOINING),
    "store.tail": ({"topic": "orders", "follow": False}, None),
    "store.create_topic": ({"topic": "bills"}, None),
    "store.get": ({"topic": "orders", "queue": 0, "offset": 0}, None),
    "store.read": ({"topic": "orders", "queue": 0, "offset": 0}, None),
    "store.message": ({"position": 0}, None),
    "store.query": ({"topic": "orders", "key": "1"}, None),
    "store.offset_at": ({"topic": "orders", "queue": 0, "time": 0}, None),
    "store.reset_offsets": ({"group": "billing", "topic": "orders", "to": "latest"}, None),
    "store.scan": ({"topic": "orders"}, ScanOptions),
    "store.verify": ({}, None),
    "store.repair": ({}, None),
    "store.compact": ({}, None),
    "store.delete_before": ({"topic": "orders", "to": "latest"}, None),
    "producer.send": ({"body": b"x"}, ONE),
    "producer.send_batch": ({"bodies": [b"x"]}, MANY),
    "producer.send_arrow": ({"data": None}, None),
    "consumer.poll": ({"timeout": 0}, None),
    "consumer.ack": ({"messages": []}, None),
    "consumer.nack": ({"message": "message"}, None),
    "consumer.reject": ({"message": "message"}, None),
    "consumer.extend": ({"message": "message", "seconds": 60}, None),
    "consumer.seek": ({"to": "earliest"}, None),
}
#: How an error names a parameter, where it does not use the parameter's name.
ALSO = {"topics": "topic", "keys": "key", "bodies": "bod", "messages": "Message"}
#: Any object is a file system until it is asked for something, and a serde is asked for any value.
ANYTHING = {("archive.open", "filesystem"), ("send", "value"), ("send_nowait", "value")}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """Return a store with two messages, a producer, a consumer, and a delivered message."""
    folder = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with forebay.open("store", commitlog_file_size=1 << 20, default_queues=1) as store:
            store.producer("orders").send_batch([b"a", b"b"], keys=["1", "2"])
            with store.consumer("orders", group="billing") as consumer:
                (message, *_) = consumer.poll(timeout=0)
                made = {"store": store, "producer": store.producer("orders")}
                yield made | {"consumer": consumer, "message": message}


def functions(it):
    """Return functions and classes: with their least arguments, and what the others are."""
    fresh = (f"new-{number}" for number in itertools.count())
    clock, json = forebay.testing.Clock(), forebay.serde.json()
    producer, consumer = {"producer": it["producer"]}, {"consumer": it["consumer"]}
    store = {"store": it["store"]}
    convert = {"source": "store", "target": next(fresh), "engine": "partitionlog"}
    meter = {"meter": get_meter("test"), "stores": it["store"]}
    return {
        "convert": (forebay.convert, convert, Options),
        "polars.scan": (forebay.polars.scan, store | {"topic": "orders"}, None),
        "duckdb.attach": (forebay.duckdb.attach, store | {"con": duckdb.connect()}, None),
        "hooks.producer": (forebay.hooks.producer, producer | {"hook": print}, None),
        "hooks.consumer": (forebay.hooks.consumer, consumer | {"hook": print}, None),
        "hooks.tracing": (forebay.hooks.tracing, {}, None),
        "metrics.Collector": (forebay.metrics.Collector, {"stores": it["store"]}, None),
        "metrics.instrument": (forebay.metrics.instrument, meter, None),
        "testing.Clock": (forebay.testing.Clock, {}, None),
        "testing.Clock.advance": (clock.advance, {}, None),
        "testing.open": (forebay.testing.open, {"clock": clock}, Options),
        "serde.Serde": (forebay.serde.Serde, {"dumps": bytes, "loads": bytes}, None),
        "serde.producer": (json.producer, producer, None),
        "serde.consumer": (json.consumer, consumer, None),
        "archive.open": (forebay.archive.open, {"target": "archive"}, None),
        "console.Console": (forebay.console.Console, store, None),
    }


def parameters(function, others):
    """Yield the parameters of a function, and the keywords that it hands on."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield name
        elif others is not None:
            yield from others.__annotations__


def is_named(name, error):
    text = str(error)
    return isinstance(error, TypeError) and "Odd" in text and ALSO.get(name, name) in text


def tried(label, function, least, others):
    """Return the parameters for which an odd value gives no error that names both."""
    unnamed = []
    for name in parameters(function, others):
        if (label, name) in ANYTHING:
            continue
        error = None
        # A call that takes the value may wait for messages.
        signal.alarm(60)
        try:
            function(**least | {name: Odd()})
        except Exception as raised:
            error = raised
        signal.alarm(0)
        if not is_named(name, error):
            unnamed.append((label, name, error))
    return unnamed


@pytest.fixture
def bounded():
    """Have an alarm raise an error."""

    def ring(_number, _frame):
        raise AssertionError("the call waits")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.signal(signal.SIGALRM, before)


def test_functions_name_an_argument_of_a_wrong_type(there, bounded):
    unnamed = [
        found
        for label, (function, least, others) in functions(there).items()
        for found in tried(label, function, least, others)
    ]
    assert unnamed == [], "\n".join(map(str, unnamed))


def wrapped(there):
    """Return the objects through which hooks and serdes send and consume, with their methods."""
    json = forebay.serde.json()
    return [
        ("producer", forebay.hooks.producer(there["producer"], lambda *_: None), THROUGH_HOOKS),
        ("consumer", forebay.hooks.consumer(there["consumer"], lambda *_: None), THROUGH_HOOKS),
        ("producer", json.producer(there["producer"]), BY_SERDE),
        ("consumer", json.consumer(there["consumer"]), BY_SERDE),
    ]


def test_producers_and_consumers_of_hooks_and_serdes_name_it_as_well(there, bounded):
    unnamed = []
    for kind, made, calls in wrapped(there):
        calls = calls | SETTLING
        public = [
            name
            for name, member in inspect.getmembers(made, inspect.ismethod)
            if not name.startswith("_") and inspect.signature(member).parameters
        ]
        assert {f"{kind}.{name}" for name in public} <= set(calls), made
        for name in public:
            least, others = calls[f"{kind}.{name}"]
            least = {k: there["message"] if v == "message" else v for k, v in least.items()}
            unnamed += tried(name, getattr(made, name), least, others)
    assert unnamed == [], "\n".join(map(str, unnamed))


def test_every_awaited_call_is_tried():
    for kind in (forebay.aio.Store, forebay.aio.Producer, forebay.aio.Consumer):
        for name, member in vars(kind).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                takes = len(inspect.signature(member).parameters) > 1
                assert not takes or f"{kind.__name__.lower()}.{name}" in AWAITED, name


async def awaited(function, least, given):
    """Call a function, and await what it returns, or its first message."""
    if "position" in given:
        return await function(given["position"])
    found = function(**least | given)
    if inspect.isawaitable(found):
        return await asyncio.wait_for(found, 60)
    if hasattr(found, "__anext__"):
        return await asyncio.wait_for(anext(found), 60)
    return found


def test_awaited_calls_name_an_argument_of_a_wrong_type(there, tmp_path):
    async def try_all():
        unnamed = []
        async with forebay.aio.open(tmp_path / "store", commitlog_file_size=1 << 20) as store:
            await store.send("orders", b"x", queue=0)
            consumer = await store.consumer("orders", group="billing")
            made = {"store": store, "producer": store.producer("orders"), "consumer": consumer}
            for label, (least, others) in AWAITED.items():
                kind, name = label.split(".")
                function = getattr(made[kind], name)
                least = {k: there["message"] if v == "message" else v for k, v in least.items()}
                for parameter in parameters(function, others):
                    error = None
                    try:
                        await awaited(function, least, {parameter: Odd()})
                    except Exception as raised:
                        error = raised
                    if not is_named(parameter, error):
                        unnamed.append((label, parameter, error))
        return unnamed

    unnamed = asyncio.run(try_all())
    assert unnamed == [], "\n".join(map(str, unnamed))


def test_an_awaited_open_names_an_option_of_a_wrong_type(tmp_path):
    async def open_all():
        for name in ("path", "mode", *OpenOptions.__annotations__):
            with pytest.raises(TypeError) as raised:
                await forebay.aio.open(**{"path": tmp_path / name, name: Odd()})
            assert is_named(name, raised.value), raised.value
        with pytest.raises(TypeError, match="plain must be a store, got Odd"):
            forebay.aio.Store(Odd())

    asyncio.run(open_all())


@pytest.mark.parametrize("seconds", [-1, -0.5, float("nan")])
def test_an_awaited_wait_refuses_what_is_no_time(tmp_path, seconds):
    async def wait():
        async with forebay.aio.open(":memory:") as store:
            await store.create_topic("orders")
            with pytest.raises(forebay.InvalidOptionError, match=r"timeout must be .* 0 or more"):
                store.tail("orders", timeout=seconds)
            async with store.consumer("orders", group="billing") as consumer:
                with pytest.raises(forebay.InvalidOptionError, match=r"timeout must be .* 0 or "):
                    await consumer.poll(timeout=seconds)

    asyncio.run(wait())


def test_items_of_a_wrong_type_are_named(there):
    for given, pattern in [
        ({"topics": ["orders", 5]}, "topics must be a list .*, got an item that is int"),
        ({"names": {"orders": 5}}, "names must be a mapping .*, got an item that is int"),
        ({"names": ["orders"]}, "names must be a mapping .*, got list"),
        ({"renumber": "x"}, "renumber must be True or False, got str"),
        ({"engine": "kafka"}, "engine .*kafka"),
    ]:
        least = {"source": "store", "target": "items", "engine": "partitionlog"}
        with pytest.raises((TypeError, forebay.InvalidOptionError), match=pattern):
            forebay.convert(**least | given)
    with pytest.raises(TypeError, match=r"queues must be a list .*, got an item that is str"):
        forebay.polars.scan(there["store"], "orders", queues=["0"])


@pytest.mark.parametrize(
    "items", [[5], [None], [[]], {5: 5}.keys(), b"ab", numpy.array([5]), numpy.array(5)]
)
def test_lists_are_checked_whatever_holds_their_items(there, items):
    store = there["store"]
    with duckdb.connect() as con:
        for call, name in [
            (lambda: forebay.duckdb.attach(con, store, items), "topics"),
            (lambda: forebay.duckdb.attach(con, store, {"orders": 5}), "topics"),
            (lambda: forebay.console.Console(store, hosts=items), "hosts"),
            # Each of its letters would be a name.
            (lambda: forebay.console.Console(store, hosts="log.example"), "hosts"),
            (lambda: forebay.polars.scan(store, items), "topic"),
            (lambda: forebay.convert("store", "x", engine="partitionlog", topics=items), "topics"),
        ]:
            with pytest.raises(TypeError, match=f"{name} must be a .*, got"):
                call()


def test_lists_without_an_end_are_refused(there, tmp_path):
    """Each had taken all memory first."""
    store = there["store"]
    store.archive(tmp_path / "archive")
    archive = forebay.archive.open(tmp_path / "archive")
    many, endless = range(10**30), itertools.repeat("orders")
    for call, name in [
        (lambda: forebay.polars.scan(store, "orders", queues=many), "queues"),
        (lambda: archive.scan("orders", queues=many), "queues"),
        (lambda: archive.scan("orders", tags=endless), "tags"),
    ]:
        with pytest.raises(forebay.InvalidOptionError, match=f"{name} must have at most 1048576"):
            call()


@pytest.mark.parametrize("name", ["engine", "flush", "isolation", "topics"])
def test_a_conversion_refuses_text_that_cannot_be_encoded(there, name):
    given = {"source": "store", "target": "odd", "engine": "partitionlog", name: "\ud800"}
    with pytest.raises(forebay.InvalidOptionError, match=f"{name} must not have surrogates"):
        forebay.convert(**given)


@pytest.mark.parametrize("engine", ["kafka", "memory", ""])
def test_a_conversion_names_the_engines_that_it_can_write(there, engine):
    allowed = f'engine must be "commitlog" or "partitionlog", got "{engine}"'
    with pytest.raises(forebay.InvalidOptionError, match=allowed):
        forebay.convert("store", "odd", engine=engine)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_a_path_that_no_file_can_have_is_named(there, path):
    for call, name in [
        (lambda: there["store"].archive(path), "target"),
        (lambda: forebay.archive.open(path), "target"),
        (lambda: forebay.convert(path, "odd", engine="partitionlog"), "source"),
        (lambda: forebay.convert("store", path, engine="partitionlog"), "target"),
    ]:
        with pytest.raises(forebay.InvalidOptionError, match=f"{name} must not have") as error:
            call()
        assert error.value.name == name


def test_a_directory_that_cannot_be_read_is_an_error_of_the_disk_with_its_path(there, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / ("x" * 300), tmp_path / "file"):
        for call in (there["store"].archive, forebay.archive.open):
            with pytest.raises(forebay.DiskError, match="cannot read") as error:
                call(path)
            assert str(path) in error.value.path
