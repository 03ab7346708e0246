"""The verbs cat, tail and query: bounds, formats, order, damage, following."""

import base64
import csv
import io
import json
import signal
import subprocess
import time
from datetime import UTC, datetime

import pytest
from cli_support import BROKER_MESSAGES, command, listing, rows
from golden_stores import unpack
from harness import LONG_S

import forebay
from forebay.cli.arguments import moment


def test_cat_writes_json_lines_in_stored_order(run, store):
    status, out, err = run("cat", store, "orders")
    assert (status, err) == (0, "")
    found = rows(out)
    assert [row["body"] for row in found[:4]] == ["body 0", "body 1", "body 2", "body 3"]
    assert [row["position"] for row in found] == sorted(row["position"] for row in found)
    with forebay.open(store, mode="r") as opened:
        message = opened.get("orders", 1, 0)
        assert found[4] == {
            "topic": "orders",
            "queue": 1,
            "offset": 0,
            "position": message.position,
            "message_id": message.message_id,
            "store_timestamp": message.store_timestamp,
            "born_timestamp": message.born_timestamp,
            "keys": ["a", "k1"],
            "tags": None,
            "properties": {"region": "eu"},
            "body": base64.b64encode(b"\xff\x00").decode(),
            "body_encoding": "base64",
        }


def test_cat_full_adds_what_brokers_keep(run, broker):
    _, out, _ = run("cat", broker, "%DLQ%fx-group", "--full")
    (row,) = rows(out)
    assert row["reconsume_times"] == 2
    assert row["system_properties"]["REAL_TOPIC"] == "%RETRY%fx-group"
    assert row["born_host"] == "127.0.0.1:37950"


def test_cat_writes_csv_that_survives_quotes_commas_and_line_ends(run, store):
    _, out, _ = run("cat", store, "bills", "orders", "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out.decode(), newline="")))
    assert len(table) == 6
    assert table[0]["body"] == 'caf\u00e9, "5"\n'
    assert table[5]["keys"] == "a k1"
    assert json.loads(table[5]["properties"]) == {"region": "eu"}
    assert table[5]["body_encoding"] == "base64"


def test_cat_writes_bodies_byte_for_byte(run, store):
    _, out, _ = run("cat", store, "orders", "--format", "raw", "--queue", "1", "--delimiter", "")
    assert out == b"\xff\x00"
    _, out, _ = run("cat", store, "orders", "--format", "raw", "--limit", "2", "--delimiter", r"\0")
    assert out == b"body 0\0body 1\0"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--queue", "0"], ["0", "1", "2", "3"]),
        (["--queue", "0", "--start", "2"], ["2", "3"]),
        (["--queue", "0", "--end", "2"], ["0", "1"]),
        (["--start", "0=3"], ["3", ""]),
        (["--start", "0=1,1=1", "--end", "0=3"], ["1", "2"]),
        (["--end", "0=99,1=0"], ["0", "1", "2", "3"]),
        (["--start", "latest"], []),
        (["--end", "earliest"], []),
        (["--limit", "3"], ["0", "1", "2"]),
        (["--tags", "odd"], ["1", "3"]),
        (["--tags", "odd", "--tags", "even", "--limit", "3"], ["0", "1", "2"]),
        (["--start", "2001-01-01T00:00Z", "--end", "2999-01-01T00:00+01:00"], [*"0123", ""]),
        (["--start", "2999-01-01T00:00Z"], []),
        (["--end", "2001-01-01T00:00Z"], []),
    ],
)
def test_cat_respects_its_bounds(run, store, arguments, expected):
    status, out, err = run("cat", store, "orders", *arguments)
    assert (status, err) == (0, "")
    # The body that is not text has no number.
    bodies = [row["body"] if row["body_encoding"] == "utf-8" else "" for row in rows(out)]
    assert [body.removeprefix("body ") for body in bodies] == expected


def test_a_time_bound_splits_a_topic_exactly(run, broker):
    with forebay.open(broker, mode="r") as store:
        times = [m.store_timestamp for m in store.tail("fx-orders", start="earliest", follow=False)]
    middle = times[100]
    when = datetime.fromtimestamp(middle / 1000, tz=UTC).isoformat(timespec="milliseconds")
    before = rows(run("cat", broker, "fx-orders", "--end", when)[1])
    after = rows(run("cat", broker, "fx-orders", "--start", when)[1])
    assert len(before) + len(after) == len(times) == 202
    assert max(row["store_timestamp"] for row in before) < middle
    assert min(row["store_timestamp"] for row in after) == middle


def test_cat_of_a_damaged_store_prints_intact_messages_and_reports_the_damage(run, tmp_path):
    status, out, err = run("cat", unpack("torn-hole", tmp_path), "orders")
    places = {(row["queue"], row["offset"]) for row in rows(out)}
    assert status == 1
    assert err.count("\n") == 1
    assert "at 1867720" in err
    assert not {(0, 224), (0, 225)} & places
    assert {(0, 223), (0, 226)} <= places


def test_cat_of_every_topic_is_the_listing_of_the_real_store(run, broker):
    expected = listing("broker")
    topics = sorted({row["topic"] for row in expected})
    status, out, _ = run("cat", broker, *topics, "--full")
    assert status == 0
    found = {(row["topic"], row["queue"], row["offset"]): row for row in rows(out)}
    assert len(found) == len(expected) == BROKER_MESSAGES
    for row in expected:
        message = found[row["topic"], row["queueId"], row["queueOffset"]]
        assert message["position"] == row["physicalOffset"]
        assert message["store_timestamp"] == row["storeTimestamp"]
        assert message["tags"] == (row.get("tags") or None)
        assert " ".join(message["keys"]) == (row.get("keys") or "")
        reserved = {"KEYS", "TAGS"}
        properties = message["properties"] | message["system_properties"]
        assert properties.items() <= row["properties"].items()
        assert row["properties"].keys() - properties.keys() <= reserved
        body = message["body"].encode()
        if message["body_encoding"] == "base64":
            body = base64.b64decode(body)
        assert body == row["body"]


def test_tail_prints_the_newest_of_all_queues_together(run, store):
    _, out, _ = run("tail", store, "orders", "-n", "2", "--format", "raw")
    assert out == b"body 3\n\xff\x00\n"
    assert len(rows(run("tail", store, "orders")[1])) == 5
    assert run("tail", store, "orders", "-n", "0")[1] == b""


def test_tail_reads_as_far_back_as_a_tag_needs(run, store):
    _, out, _ = run("tail", store, "orders", "-n", "2", "--tags", "even", "--format", "raw")
    assert out == b"body 0\nbody 2\n"
    _, out, _ = run("tail", store, "orders", "-n", "1", "--queue", "0", "--format", "raw")
    assert out == b"body 3\n"


def test_tail_follows_a_writer_until_ctrl_c(tmp_path):
    path = tmp_path / "live"
    with forebay.open(path, commitlog_file_size=1 << 20) as writer:
        writer.send("orders", b"old", queue=0)
        # Another process sees only dispatched messages; a read here dispatches.
        assert writer.get("orders", 0, 0).body == b"old"
        follower = subprocess.Popen(
            command("tail", path, "orders", "-f", "--format", "raw"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"old\n"
        for number in range(3):
            writer.send("orders", f"live {number}".encode())
            assert follower.stdout.readline() == f"live {number}\n".encode()
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=LONG_S)
    assert (follower.returncode, out, err) == (130, b"", b"")


def test_query_finds_by_key_newest_first(run, store):
    status, out, err = run("query", store, "orders", "k1")
    assert (status, err) == (0, "")
    assert [(row["queue"], row["offset"]) for row in rows(out)] == [(1, 0), (0, 1)]
    assert len(rows(run("query", store, "orders", "k1", "--limit", "1")[1])) == 1
    assert run("query", store, "orders", "nobody")[:2] == (0, b"")


def test_query_respects_its_times(run, store):
    assert run("query", store, "orders", "k1", "--end", "2001-01-01T00:00Z")[1] == b""
    (_, second) = rows(run("query", store, "orders", "k1")[1])
    exact = second["store_timestamp"]
    bounds = ("--begin", exact, "--end", exact)
    assert second in rows(run("query", store, "orders", "k1", *bounds)[1])


def test_times_are_local_dates_or_durations_ago(run, store, monkeypatch):
    every = [row["offset"] for row in rows(run("cat", store, "orders", "--queue", "0")[1])]
    assert every == [0, 1, 2, 3]

    def offsets(*bounds):
        status, out, err = run("cat", store, "orders", "--queue", "0", *bounds)
        assert (status, err) == (0, "")
        return [row["offset"] for row in rows(out)]

    assert offsets("--start", "-2h") == offsets("--start=-3d", "--end", "2200-01-01") == every
    assert offsets("--end", "-2h") == offsets("--start", "2200-01-01T12:00") == []
    _, out, _ = run("query", store, "orders", "k1", "--begin", "-1w", "--end", "2200-01-01")
    assert len(rows(out)) == 2
    _, out, _ = run("query", store, "orders", "k1", "--end", "-90s")
    assert rows(out) == []


def test_a_time_without_a_zone_is_one_of_this_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Etc/GMT-5")
    time.tzset()
    try:
        assert moment("2026-11-20T12:00") == datetime(2026, 11, 20, 7, tzinfo=UTC)
        assert moment("2026-11-20") == datetime(2026, 11, 19, 19, tzinfo=UTC)
        assert moment("2026-11-20T12:00Z") == datetime(2026, 11, 20, 12, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
