"""The verb dlq: dead letters are listed, shown, sent again once, and purged."""

import json

import pytest
from cli_support import rows, state_of

import forebay
from forebay.dead_letters import letter_queues_of


@pytest.fixture
def dead(tmp_path):
    """Return a store with three dead letters of a group, of two topics."""
    path = tmp_path / "dead"
    with forebay.open(path, default_queues=1) as store:
        store.send("orders", b"0", key="k0", tags="paid", properties={"region": "eu"})
        store.send("orders", b"1")
        store.send("bills", b"2")
        with store.consumer(["orders", "bills"], group="billing") as consumer:
            messages = []
            while len(messages) < 3:
                messages += consumer.poll(10, timeout=10)
            for message in sorted(messages, key=lambda one: one.body):
                consumer.reject(message, reason=f"no {message.body.decode()}")
    return path


def bodies(path, topic):
    with forebay.open(path, mode="r") as store:
        return [message.body for message in store.read(topic, 0, 0).messages]


def waiting(run, path):
    status, out, _ = run("dlq", "list", path, "--json")
    assert status == 0
    (found,) = json.loads(out)
    assert found["group"] == "billing"
    return found["waiting"], found["messages"]


def test_groups_with_dead_letters_are_listed(run, dead, store):
    before = state_of(dead)
    status, out, _ = run("dlq", "list", dead)
    table = [line.split("  ") for line in out.decode().splitlines()]
    assert (status, [part.strip() for part in table[1] if part]) == (0, ["billing", "3", "3"])
    assert waiting(run, dead) == (3, 3)
    assert state_of(dead) == before
    assert run("dlq", "list", store) == (0, b"no group has dead letters\n", "")


class Views:
    """A store that counts how often its topics and groups are listed."""

    def __init__(self, store):
        self.store, self.listings = store, 0

    def __getattr__(self, name):
        self.listings += name in ("topics", "groups")
        return getattr(self.store, name)


def test_the_store_is_listed_once_for_all_groups():
    """Each group listed it again: seconds with a thousand of them."""
    with forebay.open(":memory:", default_queues=1) as store:
        names = [f"group-{number}" for number in range(9)]
        for name in names:
            store.send(f"%DLQ%{name}", b"x")
        views = Views(store)
        found = letter_queues_of(views, names)
        assert [one.waiting for queues in found.values() for one in queues] == [1] * len(names)
        assert views.listings == 2


def test_dead_letters_are_shown_with_topic_attempts_and_reason(run, dead):
    status, out, err = run("dlq", "show", dead, "billing")
    assert (status, err) == (0, "")
    first = out.decode().splitlines()[1]
    assert "orders" in first
    assert first.endswith("no 0")
    status, out, _ = run("dlq", "show", dead, "billing", "--json", "--limit", "2")
    one, two = rows(out)
    assert (one["original_topic"], one["attempts"], one["reason"]) == ("orders", 1, "no 0")
    assert (one["body"], one["keys"], two["body"]) == ("0", ["k0"], "1")
    assert (one["topic"], one["properties"]["region"]) == ("%DLQ%billing", "eu")


def test_dead_letters_are_redriven_once(run, dead):
    status, out, err = run("dlq", "redrive", dead, "billing", "--limit", "1", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"group": "billing", "sent": {"orders": 1}, "waiting": 2}
    status, out, _ = run("dlq", "redrive", dead, "billing")
    assert out.decode().splitlines() == ["sent 1 to bills", "sent 1 to orders", "waiting: 0"]
    status, out, _ = run("dlq", "redrive", dead, "billing")
    assert (status, out) == (0, b"waiting: 0\n")
    assert waiting(run, dead) == (0, 3)
    assert bodies(dead, "orders") == [b"0", b"1", b"0", b"1"]
    assert bodies(dead, "bills") == [b"2", b"2"]
    with forebay.open(dead) as store:
        old, new = store.get("orders", 0, 0), store.get("orders", 0, 2)
        assert (new.key, new.tags, new.properties) == ("k0", "paid", {"region": "eu"})
        assert (new.reconsume_times, new.born_timestamp) == (0, old.born_timestamp)
        assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID"} & set(new.system_properties)
        # Its retries are counted from the beginning.
        with store.consumer("orders", group="billing") as consumer:
            again = consumer.poll(10, timeout=10)
            assert [message.reconsume_times for message in again] == [0, 0]
    assert run("dlq", "show", dead, "billing")[1] == b"no dead letters are waiting\n"
    assert len(rows(run("dlq", "show", dead, "billing", "--all", "--json")[1])) == 3


def test_a_letter_that_cannot_be_sent_stops_there_and_those_before_it_count(run, dead):
    with forebay.open(dead) as store:
        store.send("%DLQ%billing", b"3", queue=0)
        store.send("%DLQ%billing", b"4", queue=0)
    status, _, err = run("dlq", "redrive", dead, "billing")
    assert status == 1
    assert "dead letter 0@3: it does not name its original topic" in err
    assert "3 were sent before it" in err
    assert waiting(run, dead) == (2, 5)
    status, _, _ = run("dlq", "redrive", dead, "billing", "--to", "others")
    assert (status, bodies(dead, "others")) == (0, [b"3", b"4"])
    assert bodies(dead, "bills") == [b"2", b"2"]


def test_purged_letters_stay_in_the_log_and_can_wait_again(run, dead):
    assert run("dlq", "purge", dead, "billing")[1] == b"purged 3 dead letters of billing\n"
    assert waiting(run, dead) == (0, 3)
    assert json.loads(run("dlq", "purge", dead, "billing", "--json")[1])["purged"] == 0
    assert bodies(dead, "orders") == [b"0", b"1"]
    reset = ("reset-offsets", dead, "billing", "%DLQ%billing", "--to", "earliest")
    assert run(*reset)[0] == 0
    assert waiting(run, dead) == (3, 3)


def test_a_group_without_dead_letters_is_refused(run, dead, broker, tmp_path):
    for action in ("show", "redrive", "purge"):
        status, _, err = run("dlq", action, dead, "biling")
        assert (status, 'did you mean "billing"?' in err) == (1, True)
        assert run("dlq", action, tmp_path / "absent", "billing")[0] == 1
    assert not (tmp_path / "absent").exists()
    status, _, err = run("dlq", "redrive", broker, "fx-group")
    assert (status, "adopt" in err) == (1, True)
    with forebay.open(dead):
        status, _, err = run("dlq", "redrive", dead, "billing")
        assert (status, "is being written" in err) == (1, True)
    assert run("dlq", "lst", dead)[0] == 2


def test_a_brokers_dead_letter_is_sent_to_its_topic(run, broker):
    status, out, _ = run("dlq", "show", broker, "fx-group", "--json")
    (letter,) = rows(out)
    assert letter["original_topic"] == "fx-orders"
    status, out, err = run("dlq", "redrive", broker, "fx-group", "--adopt", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {"group": "fx-group", "sent": {"fx-orders": 1}, "waiting": 0}
