"""Headers, keys of any bytes, tombstones: a partition log holds them, other engines refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pyarrow as pa
import pytest
from harness import PROOF, seed
from hypothesis import strategies

import forebay
import forebay.aio

HEADERS = [("dup", b"\x01"), ("dup", b"\x02"), ("nil", None), ("", b""), ("KEYS", b"\xff")]
HEADER_TYPE = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[forebay.Store]:
    with forebay.open(tmp_path / "log", engine="partitionlog", default_queues=1) as store:
        yield store


@pytest.fixture(params=["memory", "commitlog"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[forebay.Store]:
    path = ":memory:" if request.param == "memory" else tmp_path / "commits"
    with forebay.open(path, default_queues=1) as store:
        yield store


def stored(store: forebay.Store, topic: str = "t") -> list[forebay.Message]:
    return store.read(topic, 0, 0, max_messages=1000).messages


def test_headers_come_back_in_their_order_with_duplicates_and_nulls(log: forebay.Store):
    producer = log.producer("t")
    log.send("t", b"", headers=HEADERS)
    producer.send(b"", headers=tuple(HEADERS), tags="paid", keys=["1", "2"])
    producer.send_nowait(b"", headers=[["dup", bytearray(b"\x01")], *HEADERS[1:]]).result()
    producer.send_batch([b"", b""], headers=HEADERS)
    producer.send_batch([b"", b""], headers=[HEADERS, None])
    found = [message.headers for message in stored(log)]
    assert found == [tuple(HEADERS)] * 6 + [()]
    message = stored(log)[1]
    assert (message.tags, message.keys) == ("paid", ("1", "2"))
    assert message.properties == {"dup": "\x02", "": "", "KEYS": "\ufffd"}
    log.send("t", b"", properties={"first": "1"}, headers=[("second", b"2")])
    log.send("t", b"", headers=stored(log)[-1].headers)
    assert [it.headers for it in stored(log)[-2:]] == [(("first", b"1"), ("second", b"2"))] * 2


def test_headers_that_are_none_are_refused(log: forebay.Store):
    producer = log.producer("t")
    wrong: list[tuple[object, str]] = [
        ({"a": b"1"}, "headers must be a sequence of"),
        ([b"ab"], "headers must be a sequence of"),
        ([("a", b"1", b"2")], "headers must be a sequence of"),
        ([("a", "text")], "header value must be bytes, got str"),
        ([(1, b"")], "header name must be"),
        ("ab", "headers must be a sequence"),
    ]
    for headers, text in wrong:
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(TypeError, match=text):
                send(b"", headers=headers)
    with pytest.raises(TypeError, match="header value must be bytes"):
        producer.send_batch([b"", b""], headers=[None, [("a", "text")]])
    with pytest.raises(ValueError, match="1 entry for 2 bodies"):
        producer.send_batch([b"", b""], headers=[None])
    for name in ("FOREBAY_TAGS", "FOREBAY_KEYS", "FOREBAY_REAL_TOPIC"):
        with pytest.raises(forebay.InvalidOptionError, match="reserved"):
            producer.send(b"", headers=[(name, b"")])
        with pytest.raises(forebay.InvalidOptionError, match="reserved"):
            producer.send(b"", properties={name: "x"})
    assert stored(log) == []


def test_keys_of_any_bytes_are_found_where_kafka_puts_them(tmp_path: Path):
    with forebay.open(tmp_path / "log", engine="partitionlog", default_queues=7) as log:
        producer = log.producer("t")
        one = log.send("t", b"1", key=b"\xff\x00")
        two = producer.send(b"2", keys=[b"\xff\x00", "second"])
        batch = producer.send_batch([b"3", b"4"], keys=[b"\xff\x00", [b"\xff\x00"]])
        # Kafka's producer puts these bytes there among seven partitions.
        assert {one.queue, two.queue, *batch.ranges} == {5}
        found = log.read("t", one.queue, 0).messages
        assert [it.key_bytes for it in found] == [b"\xff\x00"] * 4
        assert found[1].keys == ("\ufffd\x00", "second")
        with pytest.raises(forebay.InvalidOptionError, match="UTF-8"):
            producer.send(b"", keys=["first", b"\xff"])
        for further in ("with space", ""):
            with pytest.raises(forebay.InvalidOptionError, match="key"):
                producer.send(b"", keys=["first", further])
        # The first key is one value, whatever bytes it has.
        for key in ("with space", "", "line\n"):
            sent = producer.send(b"", key=key)
            assert log.get("t", sent.queue, sent.offset).key_bytes == key.encode()


def test_the_column_of_keys_has_all_of_them(log: forebay.Store):
    producer = log.producer("t")
    for keys in (["1", "2", "3"], ["1"], [b"\xff", "2"], []):
        producer.send(b"", keys=keys)
    columns = pa.table(log.scan("t", columns=["keys"]))
    assert columns["keys"].to_pylist() == ["1 2 3", "1", "\ufffd 2", None]


def test_a_message_without_a_body_is_a_tombstone(log: forebay.Store):
    producer = log.producer("t")
    log.send("t", None, key="1")
    producer.send(None, keys=[b"\xff"])
    producer.send_nowait(None, key="1").result()
    producer.send_batch([None, b"", b"body"], keys=["1", "2", None])
    producer.send_arrow(pa.table({"body": pa.array([None, b""]), "key": ["1", "2"]}))
    found = [(message.body, message.is_null) for message in stored(log)]
    null, empty = (b"", True), (b"", False)
    assert found == [null, null, null, null, empty, (b"body", False), null, empty]
    with pytest.raises(TypeError, match="must have a key"):
        log.send("t", None)
    with pytest.raises(TypeError, match="must have a key"):
        producer.send_nowait(None, keys=[])
    with pytest.raises(TypeError, match=r"row 1: .*must have a key") as caught:
        producer.send_batch([None, None], keys=["1", None])
    assert caught.value.row == 1
    with pytest.raises(forebay.InvalidOptionError, match="must have a key"):
        producer.send_arrow(pa.table({"body": pa.array([None, b""])}))
    assert len(stored(log)) == 8


def test_an_event_loop_sends_them_too(tmp_path: Path):
    async def send() -> None:
        path = tmp_path / "log"
        async with forebay.aio.open(path, engine="partitionlog", default_queues=1) as store:
            await store.send("t", None, key=b"\xff", headers=HEADERS)
            await store.producer("t").send_batch([b"", None], keys=["1", "2"], headers=HEADERS)

    asyncio.run(send())
    with forebay.open(tmp_path / "log") as log:
        found = stored(log)
        assert [it.is_null for it in found] == [True, False, True]
        assert [it.headers for it in found] == [tuple(HEADERS)] * 3


def test_a_column_of_headers_is_sent(log: forebay.Store):
    rows = [HEADERS, [], None]
    headers = pa.array(
        [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows],
        HEADER_TYPE,
    )
    keys = pa.array([[b"\xff", b"second"], [b"1"], None], pa.list_(pa.binary()))
    table = pa.table({"body": [b"0", b"1", b"2"], "headers": headers, "keys": keys})
    log.producer("t").send_arrow(table)
    assert [it.headers for it in stored(log)] == [tuple(HEADERS), (), ()]
    assert [it.key_bytes for it in stored(log)] == [b"\xff", b"1", None]
    # What a scan returns can be sent again.
    columns = ["headers", "body"]
    log.producer("again").send_arrow(log.scan("t", columns=columns))
    assert [it.headers for it in stored(log, "again")] == [tuple(HEADERS), (), ()]
    with pytest.raises(forebay.InvalidOptionError, match="headers"):
        log.producer("t").send_arrow(pa.table({"body": [b""], "headers": ["a"]}))


def test_other_engines_refuse_them_by_name(other: forebay.Store):
    producer = other.producer("t")
    names = "commitlog and memory"
    headers = pa.array([[{"key": "a", "value": b""}]], HEADER_TYPE)
    for send in (
        lambda: other.send("t", b"", headers=HEADERS),
        lambda: producer.send(b"", headers=HEADERS),
        lambda: producer.send_nowait(b"", headers=HEADERS),
        lambda: producer.send_batch([b""], headers=HEADERS),
        lambda: producer.send_arrow(pa.table({"body": [b""], "headers": headers})),
    ):
        with pytest.raises(forebay.UnsupportedError, match=f"headers in the engines {names}"):
            send()
    for send in (
        lambda: producer.send(b"", key=b"\xff"),
        lambda: producer.send_batch([b""], keys=[b"\xff"]),
        lambda: producer.send_arrow(pa.table({"body": [b""], "key": [b"\xff"]})),
    ):
        with pytest.raises(forebay.InvalidOptionError, match="must be UTF-8"):
            send()
    for send in (
        lambda: other.send("t", None, key="1"),
        lambda: producer.send(None, key="1"),
        lambda: producer.send_nowait(None, key="1"),
        lambda: producer.send_batch([None], keys=["1"]),
    ):
        with pytest.raises(TypeError, match="only a partition log has tombstones"):
            send()
    with pytest.raises(forebay.InvalidOptionError, match="no tombstones"):
        producer.send_arrow(pa.table({"body": pa.array([None, b""]), "key": ["1", "2"]}))
    # Empty headers are accepted, because they lose nothing.
    producer.send_batch([b""], headers=[])
    producer.send_arrow(pa.table({"body": [b""], "headers": pa.array([[]], HEADER_TYPE)}))
    assert len(stored(other)) == 2


names = strategies.text(strategies.characters(exclude_categories=["Cs"]), max_size=8)
messages = strategies.fixed_dictionaries(
    {
        "body": strategies.none() | strategies.binary(max_size=50),
        "key": strategies.binary(max_size=12),
        "headers": strategies.lists(
            strategies.tuples(
                names.filter(lambda name: not name.startswith("FOREBAY_")),
                strategies.none() | strategies.binary(max_size=20),
            ),
            max_size=4,
        ),
    }
)


@hypothesis.seed(seed())
@hypothesis.settings(max_examples=500 if PROOF else 30, deadline=None)
@hypothesis.given(sent=strategies.lists(messages, min_size=1, max_size=8))
def test_any_bytes_come_back_as_they_were_sent(tmp_path_factory, sent):
    path = tmp_path_factory.mktemp("any") / "log"
    with forebay.open(path, engine="partitionlog", default_queues=1) as log:
        one, batch, arrow = (log.producer(name, queue=0) for name in ("one", "batch", "arrow"))
        for message in sent:
            one.send(message["body"], key=message["key"], headers=message["headers"])
        rows = {name: [message[name] for message in sent] for name in sent[0]}
        batch.send_batch(rows["body"], keys=rows["key"], headers=rows["headers"])
        lists = [[{"key": k, "value": v} for k, v in row] for row in rows["headers"]]
        columns = {"key": pa.array(rows["key"], pa.binary())}
        columns["body"] = pa.array(rows["body"], pa.binary())
        columns["headers"] = pa.array(lists, HEADER_TYPE)
        arrow.send_arrow(pa.table(columns))
        for topic in ("one", "batch", "arrow"):
            found = [
                {
                    "body": None if it.is_null else it.body,
                    "key": it.key_bytes,
                    "headers": list(it.headers),
                }
                for it in stored(log, topic)
            ]
            assert found == sent
