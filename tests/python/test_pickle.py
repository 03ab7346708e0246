"""Results of calls can be pickled and copied as plain values."""

import copy
import pickle

import pytest

import forebay


def pickled(value):
    return pickle.loads(pickle.dumps(value))


WAYS = [pickled, copy.copy, copy.deepcopy]
ATTRIBUTES = {
    forebay.SendResult: (
        ["topic", "queue", "offset", "position", "message_id", "timestamp", "durable"]
    ),
    forebay.BatchResult: ["count", "ranges", "timestamp", "durable"],
    forebay.ReadBatch: ["status", "messages", "next_offset", "min_offset", "max_offset"],
    forebay.Topic: ["name", "write_queues", "read_queues", "readable", "writable"],
    forebay.Queue: ["id", "min_offset", "max_offset"],
    forebay.Verification: (
        ["ok", "records", "queue_entries", "index_entries", "stale_checksums", "damage"]
    ),
    forebay.Repair: ["ok", "steps", "left"],
}


def same(one, other):
    """Return whether two results are equal in all fields."""
    names = ATTRIBUTES.get(type(one))
    if names is None:
        return one == other
    return all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.fixture
def results(open_store, tmp_path):
    """Return one object of each class that a store or a conversion returns."""
    store = open_store()
    orders = store.producer("orders", queue=0)
    sent = orders.send(b"a", key="k")
    batch = orders.send_batch([b"b", b"c"])
    stats = store.stats()
    read = [store.read("orders", 0, 0), store.read("orders", 0, 99), store.read("none", 0, 0)]
    topic = store.topics["orders"]
    store.reset_offsets("billing", "orders", "earliest")
    (group, *_) = store.groups["billing"]
    with forebay.open(tmp_path / "source", commitlog_file_size=1 << 20) as source:
        source.send("orders", b"a")
    done = forebay.convert(tmp_path / "source", tmp_path / "target", engine="partitionlog")
    return [
        done,
        *(sent, batch, *read, read[0].messages[0], topic, topic.queues[0]),
        *(group, stats, stats.put_latency, store.recovery, store.verify(), store.repair()),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_results_can_be_pickled_and_copied(results, way):
    for result in results:
        again = way(result)
        assert type(again) is type(result)
        assert repr(again) == repr(result)
        assert same(again, result), result


def test_pickled_damage_lists_the_lost_messages(tmp_path):
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        orders = store.producer("orders", queue=0)
        lost = orders.send(b"first of two")
        orders.send(b"second of two")
    with (path / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(lost.position)
        log.write(bytes(40))
    with forebay.open(path, "r") as store:
        found = store.verify()
        assert found.damage
    with forebay.open(path) as store:
        repair = store.repair()
        assert repair.steps
    for value in (found, found.damage[0], repair, repair.steps[0]):
        assert same(pickled(value), value) and repr(pickled(value)) == repr(value)


def test_a_pickled_topic_keeps_its_values_and_needs_no_store(open_store):
    store = open_store()
    topic = store.create_topic("orders", queues=2)
    kept = pickled(topic)
    store.send("orders", b"x", queue=1)
    store.close()
    assert [queue.max_offset for queue in kept.queues] == [0, 0]
    with pytest.raises(forebay.StoreClosedError):
        _ = topic.queues
    assert [queue.max_offset for queue in pickled(kept).queues] == [0, 0]


def test_values_of_unknown_classes_are_refused():
    again, (name, values) = forebay.open(":memory:").recovery.__reduce__()
    with pytest.raises(ValueError, match="unknown class"):
        again("Store", values)
    del values["clean"]
    with pytest.raises(ValueError, match="clean"):
        again(name, values)
