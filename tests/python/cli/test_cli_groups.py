"""The verbs groups and reset-offsets."""

import json
import os
import re
from datetime import UTC, datetime, timedelta

import pytest
from cli_support import state_of

import forebay
from forebay.output import ago, human, lasting


@pytest.fixture
def consumed(store):
    """Return a store of which a group has consumed three of four messages of a queue."""
    with forebay.open(store) as opened:
        consumer = opened.consumer("orders", group="billing")
        first = [message for message in consumer.poll(100, timeout=10) if message.queue == 0]
        consumer.ack(first[:3])
        consumer.close()
    return store


def committed(path, group="billing"):
    with forebay.open(path, mode="r") as store:
        found = store.groups[group]
        return {one.queue: one.committed for one in found if one.topic == "orders"}


def test_groups_are_listed_by_queue_with_their_lag(run, consumed):
    before = state_of(consumed)
    status, out, err = run("groups", consumed)
    assert (status, err) == (0, "")
    table = [line.split() for line in out.decode().splitlines()]
    assert out.decode().splitlines()[0].startswith("group    topic   queue  committed  end  lag")
    rows = {(row[1], row[2]): row[3:6] for row in table[1:]}
    assert rows["orders", "0"] == ["3", "4", "1"]
    assert rows["orders", "1"] == ["0", "1", "1"]
    assert len(rows) == 8
    (row,) = (line for line in out.decode().splitlines() if line.split()[1:3] == ["orders", "1"])
    assert re.search(r" 1  \d+ bytes +\d+ (s|min)$", row)
    status, out, _ = run("groups", consumed, "--json")
    first = json.loads(out)[0]
    assert (first["group"], first["topic"], first["queue"]) == ("billing", "orders", 0)
    assert (first["committed"], first["max_offset"], first["lag"]) == (3, 4, 1)
    assert first["lag_bytes"] > 0
    assert first["lag_seconds"] > 0
    assert (first["owner"], first["owned_timestamp"], first["progress_timestamp"]) == (None,) * 3
    assert state_of(consumed) == before


def test_groups_are_listed_beside_the_process_that_consumes(run, consumed):
    with forebay.open(consumed) as store, store.consumer("orders", group="billing") as consumer:
        consumer.ack(consumer.poll(100, timeout=10))
        consumer.commit()
        status, out, _ = run("groups", consumed, "--json")
    assert status == 0
    assert [one["lag"] for one in json.loads(out)] == [0] * 8


def test_groups_of_a_shared_store_are_listed_with_what_its_processes_know(run, tmp_path):
    with forebay.open(tmp_path / "s", mode="share", default_queues=2) as store:
        store.producer("orders", queue=0).send_batch([b"x"] * 5)
        with store.consumer("orders", group="billing") as consumer:
            first, second, *_ = consumer.poll(100, timeout=10)
            consumer.ack(first)
            consumer.nack(second)
            _, out, _ = run("groups", tmp_path / "s")
            _, document, _ = run("groups", tmp_path / "s", "--json")
        _, left, _ = run("groups", tmp_path / "s")
    head, *lines = out.decode().splitlines()
    columns = ("consumer", "process", "unsettled", "retries", "moved")
    assert tuple(head.split()[-5:]) == columns
    rows = {tuple(line.split()[1:3]): line for line in lines}
    used = rows["orders", "0"].split()
    assert used[-6:-4] == [str(os.getpid()), "3"], used
    assert (used[-4], used[-1]) == ("1", "ago")
    assert rows["orders", "1"].split()[-3:] == [str(os.getpid()), "0", "0"]
    (known,) = (
        one for one in json.loads(document) if (one["topic"], one["queue"]) == ("orders", 0)
    )
    assert (known["unsettled"], known["retries"]) == (3, 1)
    assert known["progress_timestamp"] is not None
    # The consumer is gone, and its progress is still known.
    assert "moved" in left.decode().splitlines()[0]


def test_groups_of_a_broker_are_listed(run, broker, store):
    before = state_of(broker)
    status, out, _ = run("groups", broker, "--json")
    assert status == 0
    found = {
        one["topic"]: one["committed"] for one in json.loads(out) if one["group"] == "fx-group"
    }
    assert found["%RETRY%fx-group"] == 2
    assert state_of(broker) == before
    assert run("groups", store) == (0, b"no group has consumed anything\n", "")


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", {0: 0, 1: 0}),
        ("latest", {0: 4, 1: 1}),
        ("2020-01-01", {0: 0, 1: 0}),
        ("-0s", {0: 4, 1: 1}),
        ("0=2,1=1", {0: 2, 1: 1}),
        ("0=1", {0: 1, 1: 0}),
    ],
)
def test_offsets_are_reset(run, consumed, to, expected):
    arguments = ("reset-offsets", consumed, "billing", "orders", "--to", to)
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert (facts["group"], facts["topic"]) == ("billing", "orders")
    assert facts["queues"]["0"] == {"before": 3, "after": expected[0]}
    found = committed(consumed)
    assert {queue: found[queue] for queue in expected} == expected
    status, out, _ = run(*arguments)
    assert out.decode().splitlines()[0].split() == ["queue", "before", "after", "lag"]


def test_a_group_that_is_not_there_is_created_only_if_asked(run, consumed):
    arguments = ("reset-offsets", consumed, "biling", "orders", "--to", "latest")
    status, _, err = run(*arguments)
    assert status == 1
    assert 'there is no group "biling", did you mean "billing"? (--create' in err
    status, out, _ = run(*arguments, "--create")
    assert (status, b"none" in out) == (0, True)
    assert committed(consumed, "biling")[0] == 4


def test_wrong_arguments_of_reset_offsets_are_refused(run, consumed, broker, tmp_path):
    reset = ("reset-offsets", consumed, "billing")
    status, _, err = run(*reset, "order", "--to", "latest")
    assert (status, 'there is no topic "order", did you mean "orders"?' in err) == (1, True)
    status, _, err = run(*reset, "orders", "--to", "17")
    assert (status, "write QUEUE=17" in err) == (2, True)
    status, _, err = run(*reset, "orders", "--to", "yesterday")
    assert (status, "invalid time 'yesterday'" in err) == (2, True)
    assert run(*reset, "orders")[0] == 2
    status, _, err = run(*reset, "orders", "--to", "0=99")
    assert (status, "offset 99" in err) == (1, True)
    status, _, err = run(*reset, "orders", "--to", "9=0")
    assert (status, "no queue 9" in err) == (1, True)
    assert committed(consumed)[0] == 3
    assert run("reset-offsets", tmp_path / "absent", "g", "t", "--to", "latest")[0] == 1
    assert not (tmp_path / "absent").exists()
    status, _, err = run("reset-offsets", broker, "fx-group", "fx-orders", "--to", "latest")
    assert (status, "adopt" in err) == (1, True)
    with forebay.open(consumed):
        status, _, err = run(*reset, "orders", "--to", "latest")
    assert (status, "is being written" in err) == (1, True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86_400, "1 d"), (9e6, "104 d")],
)
def test_a_length_of_time_is_shown_in_its_largest_unit(seconds, text):
    assert lasting(seconds) == text


def test_a_time_of_a_clock_that_is_ahead_is_not_shown_as_negative():
    assert ago(datetime.now(UTC) + timedelta(hours=1)) == "0 s ago"
    assert ago(datetime.now(UTC) - timedelta(hours=3, minutes=5)) == "3 h ago"


def test_a_size_is_shown_in_its_largest_unit():
    shown = [human(size) for size in (0, 1, 1023, 1536, 3 << 40)]
    assert shown == ["0 bytes", "1 byte", "1023 bytes", "1.5 KiB", "3.0 TiB"]
