"""Reading: every status, queries, times, tails."""

import copy
import operator
import pickle
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest

import forebay
from forebay import ReadStatus


def in_time(millis):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


@pytest.fixture
def filled(store):
    store.create_topic("orders", queues=2)
    store.producer("orders", queue=0).send_batch(
        [b"%d" % number for number in range(10)],
        keys=[str(number % 3) for number in range(10)],
        tags=["even" if number % 2 == 0 else "odd" for number in range(10)],
    )
    return store


@pytest.mark.parametrize(
    ("topic", "queue", "offset", "status", "next_offset"),
    [
        ("orders", 0, 0, ReadStatus.FOUND, 10),
        ("orders", 0, 9, ReadStatus.FOUND, 10),
        ("orders", 0, 10, ReadStatus.OFFSET_OVERFLOW_ONE, 10),
        ("orders", 0, 11, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
        ("orders", 0, 10**30, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
        ("orders", 0, -1, ReadStatus.OFFSET_TOO_SMALL, 0),
        ("orders", 0, -(10**30), ReadStatus.OFFSET_TOO_SMALL, 0),
        ("orders", 1, 0, ReadStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("orders", 2, 0, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("bills", 0, 0, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
    ],
)
def test_the_status_of_a_read_says_what_was_found(
    filled, topic, queue, offset, status, next_offset
):
    batch = filled.read(topic, queue=queue, offset=offset)
    assert (batch.status, batch.next_offset) == (status, next_offset)
    assert (len(batch) > 0) == (status is ReadStatus.FOUND)
    assert list(batch) == batch.messages


def test_a_read_keeps_its_bounds(filled):
    batch = filled.read("orders", 0, 2, max_messages=3)
    assert [message.offset for message in batch] == [2, 3, 4]
    assert (batch.next_offset, batch.min_offset, batch.max_offset) == (5, 0, 10)
    assert len(filled.read("orders", 0, 0, max_bytes=1)) == 1
    size = filled.get("orders", 0, 0).size
    assert len(filled.read("orders", 0, 0, max_bytes=3 * size)) == 3


@pytest.mark.parametrize("tags", ["odd", ["odd"], "odd || never", ("never", "odd")])
def test_tags_filter(filled, tags):
    batch = filled.read("orders", 0, 0, tags=tags)
    assert [message.body for message in batch] == [b"1", b"3", b"5", b"7", b"9"]


def test_a_filter_that_matches_nothing_has_its_own_status(filled):
    batch = filled.read("orders", 0, 0, tags="never")
    assert (batch.status, batch.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)
    assert len(filled.read("orders", 0, 0, tags="*")) == 10


def test_the_error_of_get_has_the_bounds_of_the_queue(filled):
    for offset in (10, -1, 10**30):
        with pytest.raises(forebay.OffsetOutOfRangeError) as error:
            filled.get("orders", queue=0, offset=offset)
        assert (error.value.min_offset, error.value.max_offset) == (0, 10)
        assert isinstance(error.value, IndexError)
    with pytest.raises(forebay.UnknownTopicError) as error:
        filled.get("orders", queue=7, offset=0)
    assert (error.value.topic, error.value.queue) == ("orders", 7)
    with pytest.raises(LookupError) as error:
        filled.get("bills", 0, 0)
    assert (error.value.topic, error.value.queue) == ("bills", None)


def test_a_message_is_found_by_position_and_by_id(filled, meanings):
    message = filled.get("orders", 0, 4)
    if meanings.one_log:
        assert filled.message(message.position) == message
    else:
        with pytest.raises(forebay.UnsupportedError, match="by its position"):
            filled.message(message.position)
    assert filled.message(message.message_id) == message
    for wrong in ("", "zz", message.message_id[:-1], -1, 10**30):
        with pytest.raises(forebay.InvalidOptionError):
            filled.message(wrong)
    for wrong in (None, 1.5, b"id"):
        with pytest.raises(TypeError):
            filled.message(wrong)
    with pytest.raises(forebay.ForebayError):
        filled.message(1 << 40)


def test_a_query_finds_exact_keys_newest_first(filled):
    found = filled.query("orders", key="1")
    assert [message.body for message in found] == [b"7", b"4", b"1"]
    assert [message.body for message in filled.query("orders", "1", max_messages=2)] == [b"7", b"4"]
    assert filled.query("orders", "absent") == []
    stored = found[0].store_timestamp
    assert len(filled.query("orders", "1", begin=stored, end=in_time(stored))) == 3
    assert filled.query("orders", "1", begin=stored + 1) == []
    assert filled.query("orders", "1", begin=in_time(stored) + timedelta(microseconds=1)) == []
    assert filled.query("orders", "1", end=in_time(stored) - timedelta(microseconds=1)) == []
    with pytest.raises(forebay.UnknownTopicError):
        filled.query("bills", "1")


def test_an_offset_is_found_by_time(filled):
    stored = filled.get("orders", 0, 0).store_timestamp
    assert filled.offset_at("orders", queue=0, time=0) == 0
    assert filled.offset_at("orders", 0, stored) == 0
    assert filled.offset_at("orders", 0, in_time(stored)) == 0
    assert filled.offset_at("orders", 0, in_time(stored) + timedelta(microseconds=1)) == 10
    assert filled.offset_at("orders", 0, stored + 1) == 10
    with pytest.raises(forebay.UnknownTopicError):
        filled.offset_at("orders", 9, 0)


def test_messages_compare_by_their_records_and_outlive_the_store(filled):
    one, again, other = (filled.get("orders", 0, offset) for offset in (1, 1, 2))
    assert one == again
    assert hash(one) == hash(again)
    assert one != other
    assert one != "orders"
    assert len({one, again, other}) == 2
    view = memoryview(one)
    filled.close()
    assert one.body == view == b"1"
    assert view.readonly
    assert pickle.loads(pickle.dumps(one)) == one == copy.copy(one)
    with pytest.raises(AttributeError):
        one.topic = "other"


def test_an_invalid_record_does_not_unpickle():
    from forebay._forebay import message_from_record

    for record in (b"", b"x" * 200):
        with pytest.raises(ValueError, match="not a record"):
            message_from_record(record)


def test_topics_list_their_queues(filled):
    assert list(filled.topics) == ["orders"]
    topic = filled.topics["orders"]
    assert (topic.name, topic.write_queues, topic.readable, topic.writable) == (
        "orders",
        2,
        True,
        True,
    )
    assert [(queue.id, queue.min_offset, queue.max_offset) for queue in topic.queues] == [
        (0, 0, 10),
        (1, 0, 0),
    ]
    with pytest.raises(KeyError):
        filled.topics["bills"]


def test_representations_name_what_they_show(filled):
    message = filled.get("orders", 0, 1)
    batch = filled.read("orders", 0, 0)
    ticket = filled.producer("bills").send_nowait(b"x")
    for shown, parts in [
        (message, ['"orders" queue 0 offset 1', "keys=('1',)", "b'1'"]),
        (batch, ["FOUND", "10 messages", "next_offset=10"]),
        (filled, ["mode=", filled.path]),
        (filled.producer("orders"), ["orders"]),
        (filled.topics["orders"], ["orders", "write_queues=2"]),
        (filled.topics["orders"].queues[0], ["id=0", "max_offset=10"]),
        (filled.tail("orders"), ["orders"]),
        (filled.scan("orders", key="1"), ["topic='orders'", "key='1'"]),
        (filled.stats(), ["messages_sent=11"]),
        (filled.recovery, ["clean=True"]),
        (filled.verify(), ["ok=True", "records=11"]),
        (filled.repair(), ["ok=True", "steps=0"]),
        (filled.send("bills", b"x"), ["bills", "timestamp="]),
        (filled.producer("bills", 0).send_batch([b"x"]), ["count=1", "range("]),
        (ticket, ["bills", "queue"]),
    ]:
        assert all(part in repr(shown) for part in parts), repr(shown)


def test_a_tail_merges_all_queues_in_stored_order(store, meanings):
    store.create_topic("orders", queues=3)
    for number in range(900):
        store.send("orders", b"%d" % number, queue=number * number % 3)
    tail = store.tail("orders", start="earliest", follow=False)
    store.send("orders", b"after the tail was made")
    found = [(message.queue, int(message.body)) for message in tail]
    expected = [(number * number % 3, number) for number in range(900)]
    if not meanings.one_log:
        # The order within each queue, which sorting keeps.
        found.sort(key=operator.itemgetter(0))
        expected.sort(key=operator.itemgetter(0))
    assert found == expected
    assert list(tail) == []


def test_a_tail_begins_at_its_start(filled):
    def bodies(start):
        return [message.body for message in filled.tail("orders", start, follow=False)]

    stored = filled.get("orders", 0, 0).store_timestamp
    assert bodies("latest") == []
    assert bodies({0: 8}) == [b"8", b"9"]
    assert len(bodies(in_time(stored))) == 10
    assert bodies(in_time(stored + 1)) == []
    with pytest.raises(forebay.OffsetOutOfRangeError):
        bodies({0: 11})
    with pytest.raises(forebay.UnknownTopicError):
        bodies({5: 0})
    with pytest.raises(forebay.UnknownTopicError):
        filled.tail("bills")


def test_a_tail_waits_for_messages_of_another_thread(filled):
    tail = filled.tail("orders")
    sender = threading.Thread(target=filled.send, args=("orders", b"new"))
    sender.start()
    assert next(tail).body == b"new"
    sender.join()


def test_closing_ends_a_tail_that_waits(filled):
    tail = filled.tail("orders")
    closer = threading.Thread(target=filled.close)
    closer.start()
    assert next(tail, None) is None
    closer.join()


@pytest.mark.usefixtures("uncollected")
def test_ctrl_c_interrupts_a_tail_that_waits(filled):
    tail = filled.tail("orders")
    main = threading.main_thread().ident
    presser = threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may be raised by either
        presser.start()
        next(tail)
    presser.join()


def test_verify_reports_progress_and_can_be_stopped(filled, meanings):
    steps = []
    report = filled.verify(lambda done, of: steps.append((done, of)))
    assert report.ok
    assert report.records == 10
    assert report.queue_entries == (10 if meanings.one_log else 0)
    assert report.damage == filled.damage == []
    assert steps
    assert steps[-1][0] == steps[-1][1]

    def stop(done, of):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        filled.verify(progress=stop)


def test_a_repair_says_what_it_did_and_what_is_lost(tmp_path):
    path = tmp_path / "store"
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        sent = [store.send("orders", b"%d" % n, key=str(n), queue=0) for n in range(9)]
    kept = [n for n in range(9) if n != 4]
    log = path / "commitlog" / f"{0:020}"
    with open(log, "r+b") as file:
        file.seek(sent[4].position)
        file.write(b"gone")
    with forebay.open(path) as store:

        def stop(done, of):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            store.repair(stop)
        assert not store.verify().ok
        repair = store.repair()
        assert repair.ok
        assert repair.left == store.damage == store.verify().damage == []
        step = repair.steps[0]
        assert (step.path, step.position) == (str(log), sent[4].position)
        assert step.lost == [("orders", 0, 4)]
        with open(step.saved, "rb") as saved:
            assert saved.read(4) == b"gone"
        assert step._asdict()["length"] == step.length == sent[5].position - sent[4].position
        assert [m.body for m in store.read("orders", 0, 0)] == [b"%d" % n for n in kept]
        with pytest.raises(forebay.CorruptError):
            store.get("orders", 0, 4)
        assert store.repair().steps == []


def test_a_call_that_would_wait_for_its_own_repair_gets_a_busy_error(tmp_path):
    told = []

    def again(done, of):
        with pytest.raises(forebay.BusyError, match="callback of a repair") as error:
            store.repair()
        told.append(error.value.waited_ms)

    with forebay.open(tmp_path / "store", commitlog_file_size=1 << 20) as store:
        store.send("orders", b"x")
        assert store.repair(again).ok
    assert told
    assert set(told) == {0}


def test_counters_count(filled):
    stats = filled.stats()
    assert stats.messages_sent == 10
    assert stats.published >= stats.dispatched >= stats.min_position == 0
    assert stats.bytes_sent > 0
    assert filled.stats()._asdict()["sends_failed"] == 0
