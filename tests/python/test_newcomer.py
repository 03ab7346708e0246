"""A wrong use of each argument: the error names the argument, the value, and what is allowed."""

import inspect
import re
from datetime import datetime

import duckdb
import pytest

import forebay
import forebay.archive
import forebay.console
import forebay.duckdb
import forebay.hooks
import forebay.metrics
import forebay.polars
import forebay.serde
import forebay.testing
from forebay.options import OpenOptions, Options


class Odd:
    """A value of a type that no argument takes."""


#: Calls with their least arguments, by object and method; `message` stands for a delivered message.
CALLS = {
    ("store", "send"): {"topic": "orders", "body": b"x"},
    ("store", "producer"): {"topic": "orders"},
    ("store", "create_topic"): {"topic": "bills"},
    ("store", "get"): {"topic": "orders", "queue": 0, "offset": 0},
    ("store", "read"): {"topic": "orders", "queue": 0, "offset": 0},
    ("store", "message"): {"position": 0},
    ("store", "query"): {"topic": "orders", "key": "1"},
    ("store", "offset_at"): {"topic": "orders", "queue": 0, "time": 0},
    ("store", "tail"): {"topic": "orders", "follow": False},
    ("store", "consumer"): {"topics": "orders", "group": "other"},
    ("store", "reset_offsets"): {"group": "billing", "topic": "orders", "to": "latest"},
    ("store", "scan"): {"topic": "orders"},
    ("store", "verify"): {},
    ("store", "repair"): {},
    ("store", "compact"): {},
    ("store", "delete_before"): {"topic": "orders", "to": "latest"},
    ("store", "archive"): {"target": "archive"},
    ("producer", "send"): {"body": b"x"},
    ("producer", "send_nowait"): {"body": b"x"},
    ("producer", "send_batch"): {"bodies": [b"x"]},
    ("producer", "send_batch_nowait"): {"bodies": [b"x"]},
    ("producer", "send_arrow"): {"data": None},
    ("consumer", "poll"): {"timeout": 0},
    ("consumer", "ack"): {"messages": []},
    ("consumer", "nack"): {"message": "message"},
    ("consumer", "reject"): {"message": "message"},
    ("consumer", "extend"): {"message": "message", "seconds": 60},
    ("consumer", "run"): {"handler": print},
    ("consumer", "seek"): {"to": "earliest"},
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Return a store with two messages, a producer, a consumer, and a delivered message."""
    folder = tmp_path_factory.mktemp("newcomer")
    with pytest.MonkeyPatch.context() as patch:
        # An archive that a wrong call begins is made here.
        patch.chdir(folder)
        yield from made(folder)


def made(folder):
    with forebay.open(folder / "store", commitlog_file_size=1 << 20, default_queues=1) as store:
        store.producer("orders").send_batch([b"a", b"b"], keys=["1", "2"])
        with store.consumer("orders", group="billing") as consumer:
            (message, *_) = consumer.poll(timeout=0)
            made = {"store": store, "producer": store.producer("orders"), "consumer": consumer}
            yield made | {"message": message}


def parameters():
    """Return each parameter of each call: object, method and name."""
    classes = {
        "store": forebay.Store, "producer": forebay.Producer, "consumer": forebay.Consumer
    }  # fmt: skip
    for owner, method in CALLS:
        signature = inspect.signature(getattr(classes[owner], method))
        yield from ((owner, method, name) for name in signature.parameters if name != "self")


def called(objects, owner, method, given):
    function = getattr(objects[owner], method)
    given = {k: objects["message"] if v == "message" else v for k, v in given.items()}
    if (owner, method) == ("store", "message"):
        return function(given["position"])
    return function(**given)


#: How an error names a parameter, where it does not use the parameter's name.
ALSO = {"topics": "topic", "keys": "key", "bodies": "bod", "messages": "Message"}
#: Any object is a file system until it is asked for something.
ANYTHING = {("archive", "filesystem")}


def test_every_public_call_is_tried():
    for kind in (forebay.Store, forebay.Producer, forebay.Consumer):
        for name, member in vars(kind).items():
            if name.startswith("_") or not callable(member):
                continue
            if len(inspect.signature(member).parameters) > 1:
                assert (kind.__name__.lower(), name) in CALLS, name


def test_a_value_of_a_wrong_type_is_a_type_error_that_names_the_argument(objects):
    unnamed = []
    for owner, method, name in parameters():
        if (method, name) in ANYTHING:
            continue
        given = CALLS[owner, method] | {name: Odd()}
        text = "no error"
        try:
            called(objects, owner, method, given)
        except TypeError as error:
            text = str(error)
        is_named = name in text or ALSO.get(name, name) in text
        if not is_named or "Odd" not in text:
            unnamed.append((method, name, text))
    assert unnamed == [], "\n".join(map(str, unnamed))


def test_a_type_error_says_what_is_allowed(objects):
    """Python's own texts, such as "'Odd' object is not an instance of 'str'", do not."""
    terse = []
    for owner, method, name in parameters():
        for value in (Odd(), 7.5, -1, [Odd()]):
            given = CALLS[owner, method] | {name: value}
            try:
                called(objects, owner, method, given)
            except forebay.ForebayError:
                pass
            except (TypeError, OverflowError) as error:
                if not re.search(r"must|requires|to mean|pass |has no", str(error)):
                    terse.append((method, name, value, str(error)))
            except (AttributeError, FileNotFoundError) as error:
                if (method, name) not in ANYTHING:
                    terse.append((method, name, value, repr(error)))
    assert terse == [], "\n".join(map(str, terse))


def test_text_that_is_not_unicode_is_refused_by_name(objects):
    unnamed = []
    for owner, method, name in parameters():
        if (method, name) in ANYTHING | {("archive", "target")}:
            continue
        try:
            called(objects, owner, method, CALLS[owner, method] | {name: "x\ud800"})
        except UnicodeError as error:
            unnamed.append((method, name, str(error)))
        except (TypeError, forebay.ForebayError):
            pass
    assert unnamed == [], "\n".join(map(str, unnamed))


#: Calls with a value of a wrong type within an argument, or a wrong keyword, and what is said.
INNER = [
    (("store", "tail", {"start": {"0": 0}}), r"start must map queues to offsets, got {'0': 0}"),
    (("store", "scan", {"end": {0: "1"}}), r"end must map queues to offsets, got {0: '1'}"),
    (("store", "scan", {"queues": ["0"]}), "queues must be an integer, got str"),
    (("store", "consumer", {"start": 5}), r"pass .*timedelta or \{\(topic, queue\): offset\}"),
    (("consumer", "seek", {"to": 5}), r"pass .*timedelta or \{\(topic, queue\): offset\}"),
    (("consumer", "ack", {"messages": "m"}), "messages must be a Message or a sequence of them"),
    (("store", "send", {"tag": "paid"}), r"Store.send\(\) .* argument 'tag'; did you mean tags\?"),
    (("store", "send", {"wombat": 1}), r"Store.send\(\) .* argument 'wombat'$"),
]


@pytest.mark.parametrize(("call", "pattern"), INNER)
def test_a_type_error_says_what_is_wrong_within_an_argument(objects, call, pattern):
    owner, method, given = call
    with pytest.raises(TypeError, match=pattern):
        called(objects, owner, method, CALLS[owner, method] | given)


def test_an_option_that_is_not_unicode_is_refused_by_name(tmp_path):
    for name in (*OpenOptions.__annotations__, *Options.__annotations__, "mode"):
        with pytest.raises((TypeError, forebay.InvalidOptionError), match=f"^{name} "):
            forebay.open(tmp_path / name, **{name: "x\ud800"})


def test_what_is_opened_is_named_by_text(tmp_path):
    for wrong in ({"path": b"store"}, {"path": None}, {"mode": None}, {"flush": True}):
        with pytest.raises(TypeError) as raised:
            forebay.open(**{"path": tmp_path / "store"} | wrong)
        (name,) = wrong
        assert str(raised.value).startswith(f"{name} must be a str")


def test_a_closed_consumer_is_not_a_closed_store(objects):
    closed = objects["store"].consumer("orders", group="short")
    closed.close()
    with pytest.raises(forebay.StoreClosedError, match="the consumer is closed"):
        closed.poll(timeout=0)


def test_an_option_of_a_wrong_type_is_a_type_error_that_names_it(tmp_path):
    for name in OpenOptions.__annotations__ | Options.__annotations__:
        with pytest.raises(TypeError) as raised:
            forebay.open(tmp_path / name, **{name: Odd()})
        text = str(raised.value)
        assert name in text and "Odd" in text, (name, text)


#: Calls of the modules beside `forebay`: the argument that is odd, and a call with it.
MODULES = {
    "polars.scan store": lambda it, odd: forebay.polars.scan(odd, "orders"),
    "polars.scan topic": lambda it, odd: forebay.polars.scan(it["store"], odd),
    "polars.scan start": lambda it, odd: forebay.polars.scan(it["store"], "orders", start=odd),
    "duckdb.attach con": lambda it, odd: forebay.duckdb.attach(odd, it["store"]),
    "duckdb.attach store": lambda it, odd: forebay.duckdb.attach(duckdb.connect(), odd),
    "duckdb.attach topics": lambda it, odd: forebay.duckdb.attach(
        duckdb.connect(), it["store"], odd
    ),
    "serde.Serde dumps": lambda it, odd: forebay.serde.Serde(odd, bytes),
    "serde.Serde loads": lambda it, odd: forebay.serde.Serde(bytes, odd),
    "serde.producer producer": lambda it, odd: forebay.serde.json().producer(odd),
    "serde.consumer consumer": lambda it, odd: forebay.serde.json().consumer(odd),
    "hooks.producer producer": lambda it, odd: forebay.hooks.producer(odd, print),
    "hooks.producer hook": lambda it, odd: forebay.hooks.producer(it["producer"], odd),
    "hooks.consumer consumer": lambda it, odd: forebay.hooks.consumer(odd, print),
    "hooks.consumer hook": lambda it, odd: forebay.hooks.consumer(it["consumer"], odd),
    "metrics.Collector stores": lambda it, odd: forebay.metrics.Collector(odd),
    "testing.Clock at": lambda it, odd: forebay.testing.Clock(at=odd),
    "testing.Clock.advance seconds": lambda it, odd: forebay.testing.Clock().advance(odd),
    "testing.Clock.advance minutes": lambda it, odd: forebay.testing.Clock().advance(minutes=odd),
    "testing.open clock": lambda it, odd: forebay.testing.open(clock=odd),
    "archive.open target": lambda it, odd: forebay.archive.open(odd),
    "console.Console store": lambda it, odd: forebay.console.Console(odd),
    "console.Console token": lambda it, odd: forebay.console.Console(it["store"], token=odd),
    "console.Console hosts": lambda it, odd: forebay.console.Console(it["store"], hosts=odd),
    "console.Console interval": lambda it, odd: forebay.console.Console(it["store"], interval=odd),
}


@pytest.mark.parametrize("call", MODULES)
def test_the_other_modules_name_an_argument_of_a_wrong_type_as_well(objects, call):
    with pytest.raises(TypeError) as raised:
        MODULES[call](objects, Odd())
    assert call.split()[1] in str(raised.value) and "Odd" in str(raised.value)


#: Arguments with a value that is not allowed: what the error says of it.
VALUES = [
    ("store", "send", {"topic": "a/b"}, 'topic "a/b": only the characters'),
    ("store", "send", {"key": "a b"}, 'key is "a b": spaces'),
    ("store", "send", {"keys": ["a", ""]}, "key is empty: a key must have at least"),
    ("store", "send", {"tags": "a||b"}, "tags"),
    ("store", "send", {"properties": {"KEYS": "x"}}, "KEYS"),
    ("store", "send", {"queue": 9}, 'topic "orders" has no queue 9: it has 1 queue'),
    ("store", "send", {"queue": -1}, "queue must be .*-1"),
    ("store", "send", {"delay_level": 19}, "delay_level.*19"),
    ("store", "send", {"delay": -1}, "delay must be .* 0 or more, got -1"),
    ("store", "send", {"delay": 10**9}, "delay is 1000000000: .*at most 366 days"),
    ("store", "send", {"timestamp": datetime(2026, 1, 1)}, "timestamp.*time zone"),
    ("store", "create_topic", {"queues": 0}, "queues.* 1 .*65536.*0"),
    ("store", "get", {"offset": 99}, r"offset 99 .* out of range: the queue has messages 0 to \d"),
    ("store", "get", {"topic": "nope"}, 'no topic "nope"'),
    ("store", "read", {"max_messages": 0}, "max_messages must be at least 1, got 0"),
    ("store", "read", {"max_bytes": 0}, "max_bytes must be at least 1, got 0"),
    ("store", "message", {"position": "xyz"}, 'message id must be .* hex digits, got "xyz"'),
    ("store", "query", {"begin": datetime(2026, 1, 1)}, "begin.*time zone"),
    ("store", "query", {"max_messages": 0}, "max_messages must be at least 1, got 0"),
    ("store", "tail", {"start": "first"}, 'start must be .*"earliest".*first'),
    ("store", "send", {"key": "\ud800"}, "key must not have surrogates.*ud800"),
    ("store", "tail", {"timeout": -1}, "timeout must be .* 0 or more, got -1"),
    ("store", "consumer", {"order": "random"}, 'order must be "none" or "queue".*random'),
    ("store", "consumer", {"ack": "never"}, 'ack must be "auto" or "manual".*never'),
    ("store", "consumer", {"group": "a b"}, "group.*a b"),
    ("store", "consumer", {"max_unsettled": 0}, "max_unsettled must be .*0"),
    ("store", "consumer", {"visibility_timeout": -1}, "visibility_timeout must be .*-1"),
    ("store", "scan", {"columns": ["colour"]}, "colour"),
    ("store", "scan", {"batch_rows": 0}, "batch_rows must be .*0"),
    ("store", "scan", {"body_type": "text"}, 'body_type must be .*"binary".*text'),
    ("store", "scan", {"end": "last"}, 'end must be .*"latest".*last'),
    ("store", "archive", {"target": ""}, 'target must name a directory, or be a URI, got ""'),
    ("store", "archive", {"target": "nope://x"}, "target.*nope"),
    ("producer", "send_batch", {"keys": ["a", "b"]}, "keys.*2 entries for 1 bod"),
    ("consumer", "poll", {"max_messages": 0}, "max_messages must be .*0"),
    ("consumer", "nack", {"delay_level": 19}, "delay_level.*19"),
    ("consumer", "run", {"threads": 0}, "threads must be .*0"),
    ("consumer", "run", {"threads": 10**6}, "threads must be from 1 to 1024, got 1000000"),
    ("consumer", "seek", {"to": {("nope", 0): 1}}, 'to is "nope": the consumer does not read'),
    ("consumer", "seek", {"to": {("orders", 9): 1}}, 'topic "orders" has no queue 9: it has 1'),
    ("consumer", "run", {"batch": 0}, "batch must be .*0"),
]


def test_a_value_that_is_not_allowed_is_named_with_what_is(objects):
    wrong = []
    for owner, method, given, pattern in VALUES:
        try:
            called(objects, owner, method, CALLS[owner, method] | given)
        except (forebay.ForebayError, ValueError) as error:
            if not re.search(pattern, str(error)):
                wrong.append((method, given, str(error)))
        else:
            wrong.append((method, given, "no error"))
    assert wrong == []
