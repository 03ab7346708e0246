"""Bad input: the documented error with its attributes, and a store that remains usable."""

import inspect
import itertools
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import numpy
import pytest
from meanings import MEANINGS

import forebay
from forebay import errors

NAIVE = datetime(2024, 1, 1)
AWARE = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def still_usable(request):
    """After each test, send and read, to show that its store remains usable."""
    store = request.getfixturevalue("store") if "store" in request.fixturenames else None
    yield
    if store is not None:
        result = store.send("usable", b"still")
        assert store.get("usable", result.queue, result.offset).body == b"still"


@pytest.mark.parametrize(
    "topic",
    ["", "a" * 250, "a/b", "..", "a b", "a\x00b", "a\nb", "\u00e4", "~", "a\\b", "$HOME"],
)
def test_an_invalid_topic_name_is_refused(store, topic):
    refuse_topic(store, topic)


def refuse_topic(store, topic):
    for call in (
        lambda: store.send(topic, b"x"),
        lambda: store.producer(topic),
        lambda: store.create_topic(topic, queues=1),
    ):
        with pytest.raises(forebay.InvalidTopicError) as error:
            call()
        assert isinstance(error.value, ValueError)
        assert error.value.topic == topic
        assert error.value.reason
    assert store.topics == {}


def test_the_longest_topic_and_all_its_characters_are_allowed(store, meanings):
    refuse_topic(store, "a" * (meanings.topic_len_max + 1))
    for one in MEANINGS.values():
        for topic in set(one.topics) - set(meanings.topics):
            refuse_topic(store, topic)
    for topic in ("a" * meanings.topic_len_max, *meanings.topics):
        assert store.send(topic, b"x").topic == topic


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "\x00", "\x7f", "a\x01b", "\u2003", b"c d"])
def test_a_key_that_the_format_cannot_store_is_refused(store, meanings, key):
    refused = [key, [key, "good"]]
    if meanings.any_bytes:
        found = store.send("orders", b"x", key=key)
        expected = key if isinstance(key, str) else key.decode()
        assert store.get("orders", found.queue, found.offset).key == expected
        refused = []
    for keys in [*refused, ["good", key]]:
        arguments = {"keys": keys} if isinstance(keys, list) else {"key": keys}
        with pytest.raises(forebay.InvalidOptionError) as error:
            store.send("orders", b"x", **arguments)
        assert error.value.name == "key"
        with pytest.raises(forebay.InvalidOptionError, match="row 1: ") as error:
            store.producer("orders").send_batch([b"x", b"y"], keys=["good", keys])
        assert (error.value.name, error.value.row) == ("key", 1)


@pytest.mark.parametrize("tags", ["", " a", "a ", "a||b", "*", "a\x01b", "a\x02"])
def test_a_tag_that_the_format_cannot_store_is_refused(store, tags):
    with pytest.raises(forebay.InvalidOptionError) as error:
        store.send("orders", b"x", tags=tags)
    assert error.value.name == "tags"


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"KEYS": "v"}, {"__CRC32#": "v"}, {"FOREBAY_TAGS": "v"}]
)
def test_a_property_with_a_reserved_name_is_refused(store, meanings, properties):
    if "FOREBAY_TAGS" in properties and not meanings.any_bytes:
        # Only where properties and the tag are headers.
        store.send("orders", b"x", properties=properties)
        return
    with pytest.raises(forebay.InvalidOptionError, match="property"):
        store.send("orders", b"x", properties=properties)


@pytest.mark.parametrize("properties", [{"n": ""}, {"n\x01": "v"}, {"n": "v\x02"}])
def test_a_property_that_the_format_cannot_store_is_refused(store, meanings, properties):
    if meanings.any_bytes:
        sent = store.send("orders", b"x", properties=properties)
        assert store.get("orders", sent.queue, sent.offset).properties == properties
        return
    with pytest.raises(forebay.InvalidOptionError, match="property"):
        store.send("orders", b"x", properties=properties)


def test_properties_above_the_limit_name_the_largest(store, meanings):
    properties = {"short": "v", "long": "v" * 40_000}
    if meanings.any_bytes:
        sent = store.send("orders", b"x", properties=properties)
        assert store.get("orders", sent.queue, sent.offset).properties == properties
        return
    with pytest.raises(forebay.MessageTooLargeError, match="long") as error:
        store.send("orders", b"x", properties=properties)
    assert error.value.size > error.value.limit == 32_767


def test_a_body_above_the_limit_is_refused(open_store):
    store = open_store(max_message_size=1000)
    assert store.send("orders", bytes(1000)).offset == 0
    with pytest.raises(forebay.MessageTooLargeError) as error:
        store.send("orders", bytes(1001))
    assert (error.value.size, error.value.limit) == (1001, 1000)
    with pytest.raises(forebay.MessageTooLargeError) as error:
        store.producer("orders").send_batch([b"", bytes(1001)])
    assert error.value.row == 1
    assert pickle.loads(pickle.dumps(error.value)).row == 1


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("text", "encode"),
        (None, None),
        (1, "int"),
        ([1, 2], "list"),
        (memoryview(b"abcdef")[::2], "contiguous"),
        (numpy.zeros((4, 4))[:, 1], "contiguous"),
        (numpy.array([object()]), "objects"),
    ],
    ids=["str", "None", "int", "list", "strided", "column", "objects"],
)
def test_a_body_of_a_wrong_type_is_a_type_error(store, meanings, body, match):
    orders = store.producer("orders")
    match = match or meanings.no_body
    for call in (lambda: store.send("orders", body), lambda: orders.send_nowait(body)):
        with pytest.raises(TypeError, match=match):
            call()
    with pytest.raises(TypeError, match=f"row 0: .*{match}"):
        orders.send_batch([body])


@pytest.mark.parametrize(
    "arguments",
    [
        {"key": 1},
        {"key": "a", "keys": ["b"]},
        {"keys": "abc"},
        {"keys": [1]},
        {"keys": 5},
        {"tags": 1},
        {"properties": [("a", "b")]},
        {"properties": {"a": 1}},
        {"properties": {1: "a"}},
        {"queue": "0"},
        {"queue": 1.5},
        {"delay_level": "1"},
        {"flush": "yes"},
        {"timestamp": 1_700_000_000_000},
        {"timestamp": "2024-01-01"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_type_is_a_type_error(store, arguments):
    with pytest.raises(TypeError):
        store.send("orders", b"x", **arguments)
    assert "orders" not in store.topics or store.topics["orders"].queues[0].max_offset == 0


@pytest.mark.parametrize("level", [-1, 19, 256, 10**30])
def test_a_delay_level_that_does_not_exist_is_refused(store, level):
    with pytest.raises(forebay.InvalidOptionError) as error:
        store.send("orders", b"x", delay_level=level)
    assert error.value.name == "delay_level"


def test_a_queue_that_does_not_exist_is_refused(store):
    store.create_topic("orders", queues=2)
    with pytest.raises(forebay.UnknownTopicError) as error:
        store.send("orders", b"x", queue=2)
    assert (error.value.topic, error.value.queue, error.value.queues) == ("orders", 2, 2)
    for queue in (-1, 1 << 32, 10**30):
        with pytest.raises(forebay.InvalidOptionError):
            store.send("orders", b"x", queue=queue)
    for queues in (0, -1, 65_537, 1 << 40):
        with pytest.raises(forebay.InvalidOptionError):
            store.create_topic("orders", queues=queues)


def test_batch_arguments_have_one_entry_per_body(store):
    orders = store.producer("orders")
    for arguments in ({"keys": ["a"]}, {"tags": ["a"]}, {"properties": [{}]}):
        with pytest.raises(ValueError, match="1 entry for 2 bodies"):
            orders.send_batch([b"a", b"b"], **arguments)
    for bodies in (b"bytes", "text", 5, None):
        with pytest.raises(TypeError):
            orders.send_batch(bodies)


def test_an_iterable_without_an_end_is_refused(store):
    """Gathering it whole would take all memory before the first error."""
    orders = store.producer("orders")
    for name, endless in (
        ("keys", itertools.repeat("a")),
        ("tags", itertools.repeat("a")),
        ("properties", itertools.repeat({})),
        ("headers", itertools.repeat([])),
    ):
        with pytest.raises(ValueError, match=f"{name} has more than 2 entries for 2 bodies"):
            orders.send_batch([b"a", b"b"], **{name: endless})
    with pytest.raises(ValueError, match="keys has 1000000000000 entries for 1 body"):
        orders.send_batch([b"a"], keys=range(10**12))
    with pytest.raises(TypeError, match="row 0: body must be a buffer, such as bytes, got int"):
        orders.send_batch(range(10**12))
    with pytest.raises(TypeError, match="row 0: body must be bytes, got str"):
        orders.send_batch(itertools.repeat("a"))
    for name in ("keys", "headers"):
        with pytest.raises(forebay.InvalidOptionError, match=f"{name} must have at most 1048576"):
            orders.send(b"a", **{name: itertools.repeat("a")})
    with pytest.raises(forebay.InvalidOptionError, match="columns must have at most 1048576"):
        store.scan("orders", columns=itertools.repeat("a"))
    wanted = "messages must be a Message or a sequence of them, got bytes"
    with (
        store.consumer("orders", group="billing") as consumer,
        pytest.raises(TypeError, match=wanted),
    ):
        consumer.ack(itertools.repeat(b"message"))
    with pytest.raises(forebay.InvalidOptionError, match="topics must have at most 1048576"):
        forebay.convert("here", "there", engine="commitlog", topics=itertools.repeat("a"))


@pytest.mark.parametrize(("time", "hours"), [(datetime.max, -14), (datetime.min, 14)])
def test_a_time_that_utc_cannot_express_is_refused(store, time, hours):
    with pytest.raises(forebay.InvalidOptionError, match="years 1 to 9999"):
        store.send("orders", b"x", timestamp=time.replace(tzinfo=timezone(timedelta(hours=hours))))
    store.send("orders", b"x", timestamp=time.replace(tzinfo=UTC))


def test_a_naive_datetime_is_refused_everywhere(store):
    store.send("orders", b"x", key="k")
    for call in (
        lambda: store.send("orders", b"x", timestamp=NAIVE),
        lambda: store.query("orders", "k", begin=NAIVE),
        lambda: store.query("orders", "k", end=NAIVE),
        lambda: store.offset_at("orders", 0, NAIVE),
        lambda: store.tail("orders", start=NAIVE),
        lambda: store.scan("orders", start=NAIVE),
        lambda: store.scan("orders", end=NAIVE),
    ):
        with pytest.raises(forebay.InvalidOptionError, match="time zone"):
            call()


def test_an_integer_is_refused_as_the_start_of_a_scan_or_tail(store):
    store.send("orders", b"x")
    for number in (0, 1_700_000_000_000):
        for call in (
            lambda number=number: store.tail("orders", start=number),
            lambda number=number: store.scan("orders", start=number),
            lambda number=number: store.scan("orders", end=number),
        ):
            with pytest.raises(TypeError, match="offset or time"):
                call()


@pytest.mark.parametrize("start", ["", "first", 1.5, [0], b"latest"])
def test_an_invalid_start_is_refused(store, start):
    store.send("orders", b"x")
    with pytest.raises((TypeError, forebay.InvalidOptionError), match="start"):
        store.tail("orders", start=start)


@pytest.mark.parametrize("time", [1.5, "now", None, True])
def test_a_time_is_a_datetime_or_milliseconds(store, time):
    store.send("orders", b"x", queue=0)
    with pytest.raises(TypeError, match="time"):
        store.offset_at("orders", 0, time)
    assert store.offset_at("orders", 0, AWARE) == 0
    assert store.offset_at("orders", 0, -(10**30)) == 0
    assert store.offset_at("orders", 0, 10**30) == 1


def test_a_read_asks_for_at_least_one_message(store):
    store.send("orders", b"x", key="k", queue=0)
    for number in (0, -1, -(10**30)):
        with pytest.raises(forebay.InvalidOptionError) as error:
            store.read("orders", 0, 0, max_messages=number)
        assert str(error.value) == f"max_messages must be at least 1, got {number}"
        with pytest.raises(forebay.InvalidOptionError, match="max_bytes must be at least 1"):
            store.read("orders", 0, 0, max_bytes=number)
        with pytest.raises(forebay.InvalidOptionError):
            store.query("orders", "k", max_messages=number)
    assert len(store.read("orders", 0, 0, max_messages=10**30, max_bytes=10**30)) == 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"no_such_option": 1}, "no_such_option"),
        ({"mode": "w"}, "mode"),
        ({"engine": "rocksdb"}, "engine"),
        ({"flush": "always"}, "flush"),
        ({"default_queues": 0}, "default_queues"),
        ({"default_queues": -1}, "default_queues"),
        ({"default_queues": 1 << 70}, "default_queues"),
        ({"commitlog_file_size": 5000}, "commitlog_file_size"),
        ({"flush_interval": -1}, "flush_interval"),
        ({"flush_least_pages": -1}, "flush_least_pages"),
        ({"flush_messages": 0}, "flush_messages"),
        ({"flush_messages": 1 << 63}, "flush_messages"),
        ({"flush_messages": 5, "flush": "sync"}, "flush_messages"),
        # Only a partition log has it.
        ({"flush_messages": 5}, "flush_messages"),
        ({"transient_pool": 1025}, "transient_pool"),
        ({"transient_pool": 1, "flush": "sync"}, "transient_pool"),
        ({"commit_interval": float("inf")}, "commit_interval"),
        ({"flush_interval": float("nan")}, "flush_interval"),
        ({"flush_timeout": timedelta(seconds=-1)}, "flush_timeout"),
        ({"store_host": "no address"}, "store_host"),
        ({"retention": 0}, "retention"),
        ({"retention": timedelta(days=-1)}, "retention"),
        ({"retention_bytes": 0}, "retention_bytes"),
        ({"retention_bytes": -1}, "retention_bytes"),
        ({"disk_reserve": -1}, "disk_reserve"),
        ({"delete_when": "24", "retention": 60}, "delete_when"),
        ({"delete_when": "four", "retention": 60}, "delete_when"),
        ({"delete_when": "04"}, "delete_when"),
        ({"disk_warning_ratio": 90, "retention": 60}, "disk_warning_ratio"),
        ({"disk_warning_ratio": 0, "retention": 60}, "disk_warning_ratio"),
        ({"disk_warning_ratio": float("nan"), "retention": 60}, "disk_warning_ratio"),
        ({"disk_warning_ratio": 0.9}, "disk_warning_ratio"),
        # A memory store has no files that could be deleted.
        ({"retention": 60}, "retention"),
        ({"retention_bytes": 1 << 40}, "retention_bytes"),
    ],
    ids=str,
)
def test_an_option_that_is_not_allowed_is_named(options, name):
    with pytest.raises(forebay.InvalidOptionError) as error:
        forebay.open(":memory:", **options)
    assert error.value.name == name
    assert isinstance(error.value, ValueError)


def test_a_misspelt_option_names_the_nearest():
    page = Path(__file__).parents[2] / "docs/options.md"
    rows = [line.split("|")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    names = set(re.findall("`([a-z_]+)`", " ".join(rows)))
    assert names == {"mode", *forebay.options.OpenOptions.__annotations__}
    for name in names:
        with pytest.raises(forebay.InvalidOptionError, match=f"did you mean {name}\\?"):
            forebay.open(":memory:", **{f"{name}_": 1})


@pytest.mark.parametrize(
    "options",
    [
        {"index": 1},
        {"default_queues": True},
        {"default_queues": 8.0},
        {"flush_interval": "1s"},
        {"flush_interval": True},
        {"store_host": 5},
        {"retention": "7d"},
        {"retention": True},
        {"retention_bytes": 1.5},
        {"keep_unconsumed": 1},
        {"disk_reserve": None},
        {"delete_when": 4},
        {"disk_warning_ratio": "0.9"},
        {"disk_warning_ratio": True},
        {"adopt": "yes"},
    ],
    ids=str,
)
def test_an_option_of_a_wrong_type_is_a_type_error(options):
    with pytest.raises(TypeError):
        forebay.open(":memory:", **options)


def test_options_take_the_documented_types(open_store):
    store = open_store(
        flush_interval=timedelta(milliseconds=20),
        flush_timeout=2,
        queue_flush_interval=0.5,
        flush_least_pages=0,
        flush_thorough_interval=timedelta(seconds=1),
        busy_timeout=Fraction(1, 2),
        default_queues=numpy.int64(3),
        index=None,
        roll_after=timedelta(days=1),
    )
    result = store.send("orders", b"x")
    message = store.get("orders", result.queue, result.offset)
    assert message.message_id == result.message_id
    assert store.topics["orders"].write_queues == 3


def test_options_of_one_log_are_refused_by_others(open_store, meanings):
    options = {
        "transient_pool": 2,
        "commit_least_pages": 1,
        "store_host": "10.1.2.3:99",
        "unique_ids": True,
    }
    if not meanings.one_log:
        for name in ("transient_pool", "store_host", "unique_ids"):
            with pytest.raises(forebay.InvalidOptionError, match="a partition log") as error:
                open_store(**{name: options[name]})
            assert error.value.name == name
        return
    store = open_store(**options, transient_pool_fail_fast=True, commit_interval=0.05)
    result = store.send("orders", b"x")
    message = store.get("orders", result.queue, result.offset)
    assert message.store_host == "10.1.2.3:99"
    assert len(message.system_properties["UNIQ_KEY"]) == 32
    assert store.query("orders", message.system_properties["UNIQ_KEY"]) == [message]


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    with pytest.raises(forebay.UnsupportedError) as error:
        forebay.open(tmp_path, engine="partitionlog", mode="share", cleanup_policy="compact")
    assert isinstance(error.value, NotImplementedError)


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_a_process_that_joins_with_another_option_sees_both_values(tmp_path, engine):
    def share(bytes_max):
        return forebay.open(tmp_path, mode="share", engine=engine, max_message_size=bytes_max)

    told = "max_message_size is 2000: the processes that share the store have 1000"
    with share(1000), pytest.raises(forebay.InvalidOptionError, match=told):
        share(2000)


@pytest.mark.parametrize("mode", ["a", "x", "r"])
def test_an_engine_that_contradicts_the_files_is_an_error_with_both(tmp_path, mode):
    for engine, other, form in (
        ("commitlog", "partitionlog", "commit log"),
        ("partitionlog", "commitlog", "partition log"),
    ):
        path = tmp_path / engine
        with forebay.open(path, engine=engine) as store:
            store.send("orders", b"x")
        with pytest.raises(forebay.InvalidOptionError) as error:
            forebay.open(path, mode, engine=other)
        assert str(error.value) == f'engine is "{other}": the store at {path} is a {form}'


@pytest.mark.parametrize(
    "option",
    [
        *({"commitlog_file_size": 1 << 20}, {"queue_file_entries": 5}, {"index_slots": 5}),
        {"index_entries": 5},
    ],
    ids=str,
)
def test_an_option_of_a_commit_log_is_refused_for_a_partition_log(tmp_path, option):
    with pytest.raises(forebay.InvalidOptionError, match="only a commit log has this option"):
        forebay.open(tmp_path / "log", engine="partitionlog", **option)
    # Otherwise a store would be open, and its threads would continue.
    assert not (tmp_path / "log").exists()


def test_an_option_that_is_no_word_is_shown_as_it_was_given(tmp_path):
    for name in ("append_lock", "compression", "cleanup_policy", "isolation", "delay_levels"):
        with pytest.raises(forebay.InvalidOptionError, match='got "wombat"'):
            forebay.open(tmp_path / "store", engine="partitionlog", **{name: "wombat"})


AT_THE_END = """
import forebay, sys
store = forebay.open(sys.argv[1])

class Late:
    def __del__(self, send=store.send, closed=forebay.StoreClosedError, say=print):
        try:
            send("orders", b"x")
        except closed as error:
            say(error)

late = Late()
late.itself = late
"""


def test_an_error_is_raised_as_itself_while_the_interpreter_shuts_down(tmp_path):
    """Nothing can be imported then."""
    command = [sys.executable, "-c", AT_THE_END, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout) == (
        "",
        f"the store {tmp_path}/store is closed: open it again\n",
    )


def test_a_path_that_no_file_can_have_is_refused(tmp_path):
    for path in ("a\0b", "a\ud800", tmp_path / "a\0b"):
        with pytest.raises(forebay.InvalidOptionError, match=r"^path (must|is)") as error:
            forebay.open(path)
        assert error.value.name == "path"


def test_a_path_of_other_bytes_than_utf_8_is_a_path(tmp_path):
    path = f"{tmp_path}/\udcff"
    forebay.open(path).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["\udcff"]


def test_a_partition_log_that_is_locked_may_be_shared(tmp_path):
    with (
        forebay.open(tmp_path, engine="partitionlog"),
        pytest.raises(forebay.StoreLockedError, match=r'mode="r".*mode="share"'),
    ):
        forebay.open(tmp_path)


def test_every_error_is_a_forebay_error_and_a_builtin():
    classes = [getattr(errors, name) for name in errors.__all__]
    assert all(getattr(forebay, name) is getattr(errors, name) for name in errors.__all__)
    for one in classes:
        assert issubclass(one, forebay.ForebayError)
        if one is not forebay.ForebayError:
            builtin = [base for base in one.__mro__ if base.__module__ == "builtins"]
            assert set(builtin) - {Exception, BaseException, object}


def test_errors_have_attributes_and_pickle():
    error = forebay.StoreNotFoundError("no store at x", path="x")
    assert (error.errno, error.filename, error.path, str(error)) == (2, "x", "x", "no store at x")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.path, str(again)) == (type(error), "x", "no store at x")
    assert forebay.DiskError("cannot open x", path="x", errno=5).errno == 5
    assert forebay.BusyError("busy", waited_ms=3).waited_ms == 3


def test_public_classes_are_found_where_they_are_public():
    for name in forebay.__all__:
        value = getattr(forebay, name)
        if inspect.isclass(value) and not issubclass(value, Exception):
            assert value.__module__ in ("forebay", "forebay.conversion", "forebay.store"), name


class Pressed:
    """A call converts its argument by Python code, which Ctrl-C interrupts."""

    def press(self, *_):
        raise KeyboardInterrupt

    __class__ = property(press)
    __iter__ = __index__ = __float__ = press


def test_ctrl_c_in_the_code_of_an_argument_ends_the_call(tmp_path):
    """PyO3 lost what its check for a mapping raised; other checks took it for a wrong type."""
    pressed = Pressed()
    with forebay.open(":memory:") as store:
        orders = store.producer("orders")
        calls = {
            "properties": lambda: orders.send(b"apples", properties=pressed),
            "headers": lambda: orders.send(b"apples", headers=pressed),
            "keys": lambda: orders.send(b"apples", keys=pressed),
            "queue": lambda: orders.send(b"apples", queue=pressed),
            "delay": lambda: orders.send(b"apples", delay=pressed),
            "properties of a batch": lambda: orders.send_batch([b"apples"], properties=pressed),
            "headers of a batch": lambda: orders.send_batch([b"apples"], headers=pressed),
            "start of a tail": lambda: store.tail("orders", start=pressed),
            "start of a group": lambda: store.consumer("orders", group="billing", start=pressed),
            "cleanup_policy": lambda: forebay.open(
                tmp_path, engine="partitionlog", cleanup_policy=pressed
            ),
        }
        ended = {}
        for name, call in calls.items():
            try:
                ended[name] = repr(call())
            except KeyboardInterrupt:
                pass
            except Exception as error:
                ended[name] = repr(error)
    assert ended == {}


MADE = [
    name
    for name in forebay.__all__
    if getattr(forebay._forebay, name, None) is getattr(forebay, name) and name != "__version__"
]


@pytest.mark.parametrize("name", MADE)
def test_a_class_that_only_forebay_makes_says_where_one_comes_from(name):
    for given, named in (((), {}), (("events",), {}), ((1, 2), {"three": 3})):
        with pytest.raises(TypeError) as caught:
            getattr(forebay, name)(*given, **named)
        said = re.fullmatch(
            rf"{name} cannot be called: get one from (\w+)\.(\w+)", str(caught.value)
        )
        assert said is not None, str(caught.value)
        owner = forebay if said[1] == "forebay" else getattr(forebay, said[1])
        assert hasattr(owner, said[2])
