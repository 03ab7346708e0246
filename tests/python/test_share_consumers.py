"""Consumers of a store that several processes, or several handles, share."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import store_files
from harness import LONG_S
from processes import run_with_children

import forebay
from forebay.spark.group import record

QUEUES = 4
#: What an opening names, by engine.
ENGINES: dict[str, dict[str, object]] = {
    "commitlog": {"index": False},
    "partitionlog": {"engine": "partitionlog"},
}
#: The options of the engine that a test runs over.
OF_ENGINE: dict[str, object] = {}


@pytest.fixture(autouse=True, params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    OF_ENGINE.clear()
    OF_ENGINE.update(ENGINES[request.param])
    return request.param


def share(path: Path, **options: object) -> forebay.Store:
    # On a busy machine a process may be off its CPU for long while it holds the append lock.
    named = {"default_queues": QUEUES, "busy_timeout": 60, **OF_ENGINE, **options}
    return forebay.open(path, mode="share", **named)


def offsets_of(path: Path) -> Path:
    """Return the table of offsets of a store."""
    name = "consumerOffset.json"
    return path / (f"forebay.{name}" if "engine" in OF_ENGINE else f"config/{name}")


def fill(store: forebay.Store, count: int = 40, topic: str = "orders") -> None:
    for number in range(count):
        store.send(topic, b"%d" % number, queue=number % QUEUES)


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def queues_of(consumer: forebay.Consumer) -> set[int]:
    return {queue for topic, queue in consumer.assignment if topic == "orders"}


def take_all(consumer: forebay.Consumer, count: int) -> list[bytes]:
    """Acknowledge so many messages."""
    bodies: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(bodies) < count:
        assert time.monotonic() < deadline, bodies
        messages = consumer.poll(100, timeout=1)
        consumer.ack(messages)
        bodies += [message.body for message in messages]
    return bodies


def test_handles_share_the_queues_of_a_group(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one)
        first = one.consumer("orders", group="g")
        assert queues_of(first) == {0, 1, 2, 3}
        second = two.consumer("orders", group="g")
        # Nobody held anything of the queues that moved.
        until(lambda: len(queues_of(second)) == 2)
        assert queues_of(first) | queues_of(second) == {0, 1, 2, 3}
        bodies = take_all(first, 20) + take_all(second, 20)
        assert sorted(map(int, bodies)) == list(range(40))
        assert not first.poll(10, timeout=0)
        second.close()
        until(lambda: len(queues_of(first)) == QUEUES)
        fill(two, 8)
        assert len(take_all(first, 8)) == 8
        assert all(queue.lag == 0 for queue in two.groups["g"])


def test_an_owner_keeps_a_queue_until_it_has_settled_what_it_holds(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one)
        first = one.consumer("orders", group="g")
        held = first.poll(100, timeout=5)
        assert len(held) == 40
        second = two.consumer("orders", group="g")
        until(lambda: len(queues_of(second)) == 2)
        # It has been given queues, and gets nothing before their owner has settled all.
        assert second.poll(10, timeout=0.3) == []
        one.send("orders", b"new", queue=min(queues_of(second)))
        first.ack(held)
        (message,) = second.poll(10, timeout=10)
        assert message.body == b"new"
        second.ack(message)


def test_a_consumer_that_closes_gives_back_what_it_holds(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one, 8)
        first = one.consumer("orders", group="g")
        second = two.consumer("orders", group="g")
        until(lambda: len(queues_of(second)) == 2)
        held = first.poll(100, timeout=5)
        mine = take_all(second, 4)
        first.close()
        again = take_all(second, 4)
        assert sorted(again) == sorted(message.body for message in held)
        assert not set(again) & set(mine)


CONSUMER = """
import sys, forebay
path, group, session = sys.argv[1:4]
store = forebay.open(path, mode="share", busy_timeout=60)
consumer = store.consumer("orders", group=group, session_timeout=float(session))
held = consumer.poll(100, timeout=30)
print(len(held), flush=True)
sys.stdin.readline()
def refused(call):
    try:
        call()
    except forebay.OwnershipLostError:
        return True
    return False
print(refused(lambda: consumer.ack(held[0])), refused(lambda: consumer.nack(held[0])),
      refused(consumer.commit), refused(lambda: consumer.poll(1, timeout=0)),
      refused(lambda: consumer.poll(1, timeout=0)), refused(lambda: consumer.ack(held[0])),
      flush=True)
sys.stdin.readline()
"""


#: Acknowledges 20 messages, twice.
SETTLES = """
import sys, forebay
path, group = sys.argv[1:3]
store = forebay.open(path, mode="share", busy_timeout=60)
consumer = store.consumer("orders", group=group)
for _ in range(2):
    left = 20
    while left:
        messages = consumer.poll(left, timeout=1)
        consumer.ack(messages)
        left -= len(messages)
    print(20, flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def process(
    path: Path, session: float = 10, program: str = CONSUMER
) -> Iterator[subprocess.Popen[str]]:
    """Run a process that consumes in the group g; by default it holds messages."""
    command = [sys.executable, "-c", program, str(path), "g", str(session)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdout is not None
            assert int(child.stdout.readline()) > 0
            yield child
        finally:
            child.kill()


def test_the_queues_of_a_dead_process_are_taken_over_at_once(tmp_path: Path):
    with share(tmp_path / "s") as store:
        fill(store)
        with process(tmp_path / "s") as child:
            consumer = store.consumer("orders", group="g")
            assert consumer.poll(10, timeout=0) == []
            child.kill()
            child.wait()
            # Everything it held is delivered again, long before its session times out.
            assert len(take_all(consumer, 40)) == 40
            assert {row.owner_pid for row in store.groups["g"]} == {os.getpid()}


def test_a_process_that_hangs_loses_its_queues_and_is_told(tmp_path: Path):
    with share(tmp_path / "s") as store:
        fill(store)
        with process(tmp_path / "s", session=1) as child:
            consumer = store.consumer("orders", group="g")
            child.send_signal(signal.SIGSTOP)
            assert len(take_all(consumer, 40)) == 40
            child.send_signal(signal.SIGCONT)
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            # ack, nack, commit and poll are refused; then it is a member again, and what it held
            # stays lost.
            assert child.stdout.readline().split() == ["True"] * 4 + ["False", "True"]
            until(lambda: len(queues_of(consumer)) == 2)
            assert all(row.lag == 0 for row in store.groups["g"])


def test_a_process_with_the_slot_of_a_dead_one_does_not_stand_for_it(tmp_path: Path):
    """Its lock is held again, by a process that consumes nothing."""
    with share(tmp_path / "s") as store:
        fill(store)
        with process(tmp_path / "s") as child:
            store.consumer("orders", group="other").close()
            child.kill()
            child.wait()
            with share(tmp_path / "s"):
                consumer = store.consumer("orders", group="g")
                assert len(take_all(consumer, 40)) == 40


def test_the_leader_delivers_refused_and_delayed_messages_for_all(tmp_path: Path):
    one, two = share(tmp_path / "s"), share(tmp_path / "s")
    with two:
        two.send("orders", b"level", delay_level=1)
        two.send("orders", b"timed", delay=0.2)
        with two.consumer("orders", group="g") as consumer:
            assert sorted(take_all(consumer, 2)) == [b"level", b"timed"]
            two.send("orders", b"refused")
            (message,) = consumer.poll(1, timeout=10)
            consumer.nack(message, delay_level=1)
            (again,) = consumer.poll(1, timeout=10)
            assert (again.body, again.topic, again.reconsume_times) == (b"refused", "orders", 1)
            consumer.reject(again, reason="no")
            dead = "dlq.g" if "engine" in OF_ENGINE else "%DLQ%g"
            assert two.read(dead, 0, 0).messages[0].body == b"refused"
            # The one that remains takes over.
            two.send("orders", b"later", delay=1)
            one.close()
            assert take_all(consumer, 1) == [b"later"]
            two.send("orders", b"last", delay_level=1)
            assert take_all(consumer, 1) == [b"last"]


def test_progress_is_shared_and_saved_by_its_rules(tmp_path: Path):
    table = offsets_of(tmp_path / "s")
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one)
        consumer = two.consumer("orders", group="g")
        take_all(consumer, 40)
        consumer.commit()
        rows = json.loads(table.read_text())["offsetTable"]
        assert rows["orders@g"] == {str(queue): 10 for queue in range(QUEUES)}
        # Another writer, such as a Spark driver: its rows stay.
        record(str(tmp_path / "s"), "spark", {("orders", 0): 7})
        assert (tmp_path / "s" / "config").exists() == ("engine" not in OF_ENGINE)
        fill(one, 4)
        take_all(consumer, 4)
        consumer.commit()
        rows = json.loads(table.read_text())["offsetTable"]
        assert rows["orders@spark"] == {"0": 7}
        assert rows["orders@g"] == {str(queue): 11 for queue in range(QUEUES)}
        fill(one, 4)
        take_all(consumer, 4)
    assert not (tmp_path / "s" / "forebay.groups").exists()
    with forebay.open(tmp_path / "s") as store:
        assert {row.committed for row in store.groups["g"] if row.topic == "orders"} == {12}
        fill(store, 4)
    with share(tmp_path / "s") as store, store.consumer("orders", group="g") as consumer:
        assert len(take_all(consumer, 4)) == 4


def test_a_leader_saves_the_progress_of_processes_that_die(tmp_path: Path):
    table = offsets_of(tmp_path / "s")

    def saved() -> dict[str, int]:
        rows = json.loads(table.read_text())["offsetTable"] if table.exists() else {}
        return rows.get("orders@g", {})

    with share(tmp_path / "s") as one:
        fill(one)
        with process(tmp_path / "s", program=SETTLES) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            # The leader saves the rest only some seconds later.
            until(saved, LONG_S)
            print(file=child.stdin, flush=True)
            assert int(child.stdout.readline()) == 20
            child.kill()
            child.wait()
            until(lambda: saved() == {str(queue): 10 for queue in range(QUEUES)}, LONG_S)
        assert {row.committed for row in one.groups["g"] if row.topic == "orders"} == {10}


def test_owners_are_seen_from_outside(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one)
        first = one.consumer("orders", group="g")
        held = first.poll(1, timeout=5)
        with forebay.open(tmp_path / "s", mode="r") as reader:
            seen = [two.groups["g"], reader.groups["g"]]
        command = [sys.executable, "-m", "forebay", "groups", str(tmp_path / "s")]
        listed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert str(os.getpid()) in shown
        for rows in [*seen, [SimpleNamespace(**row) for row in json.loads(listed.stdout)]]:
            assert [row.owner_pid for row in rows] == [os.getpid()] * QUEUES
            assert [row.owner for row in rows] == [1] * QUEUES
            assert sum(row.unsettled for row in rows) == 1
            assert all(row.owned_timestamp is not None for row in rows)
        first.ack(held)
        first.close()
        assert {row.owner_pid for row in two.groups["g"]} == {None}
    with forebay.open(tmp_path / "s", mode="r") as reader:
        assert {row.owner_pid for row in reader.groups["g"]} == {None}


def test_offsets_are_reset_in_all_processes(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        fill(one)
        consumer = one.consumer("orders", group="g")
        held = consumer.poll(1, timeout=5)
        take_all(consumer, 39)
        two.reset_offsets("g", "orders", {0: 5, 1: 0})
        with pytest.raises(forebay.OwnershipLostError):
            consumer.ack(held)
        assert len(take_all(consumer, 15)) == 15
        rows = json.loads(offsets_of(tmp_path / "s").read_text())
        assert rows["offsetTable"]["orders@g"]["0"] == 5
        consumer.seek({("orders", 2): 9})
        assert take_all(consumer, 1) == [b"38"]
        # A group that nobody has begun begins there.
        two.reset_offsets("new", "orders", "latest")
        two.send("orders", b"after", queue=3)
        with one.consumer("orders", group="new") as new:
            assert take_all(new, 1) == [b"after"]


def test_order_holds_across_processes(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        one.create_topic("orders", queues=1)
        for number in range(20):
            one.send("orders", b"%d" % number)
        first = one.consumer("orders", group="g", order="queue")
        second = two.consumer("orders", group="g", order="queue")
        messages = first.poll(5, timeout=5)
        first.ack(messages[:3])
        assert second.poll(1, timeout=0) == []
        first.close()
        assert take_all(second, 17) == [b"%d" % number for number in range(3, 20)]


def test_new_queues_are_consumed_by_all(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        one.create_topic("orders", queues=1)
        first = one.consumer("orders", group="g")
        second = two.consumer("orders", group="g")
        assert first.poll(1, timeout=0) == second.poll(1, timeout=0) == []
        two.create_topic("orders", queues=4)
        two.send("orders", b"x", queue=3)
        found: list[bytes] = []

        def consume(consumer: forebay.Consumer) -> None:
            while not found:
                messages = consumer.poll(1, timeout=0.5)
                consumer.ack(messages)
                found.extend(message.body for message in messages)

        threads = [threading.Thread(target=consume, args=(it,)) for it in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert found == [b"x"]
        assert len(queues_of(first)) == len(queues_of(second)) == 2


FORK = """
import os, sys, forebay
store = forebay.open(
    sys.argv[1], mode="share", engine=sys.argv[2], default_queues=2, busy_timeout=60
)
consumer = store.consumer("orders", group="g")
store.send("orders", b"parent", queue=0)
(message,) = consumer.poll(1, timeout=10)
pid = os.fork()
if pid == 0:
    status = 1
    try:
        for call in (
            lambda: consumer.poll(1, timeout=0),
            lambda: consumer.ack(message),
            lambda: consumer.nack(message),
            lambda: consumer.assignment,
            lambda: consumer.lag(),
            lambda: consumer.commit(),
            lambda: consumer.seek("earliest"),
            lambda: consumer.close(),
        ):
            try:
                call()
            except forebay.ForkedError:
                continue
            raise AssertionError("a consumer came through fork")
        with store.consumer("orders", group="child") as own:
            (again,) = own.poll(1, timeout=10)
            assert again.body == b"parent"
            own.ack(again)
            assert len(store.groups["g"]) == 2, store.groups
        store.send("orders", b"child", delay_level=1)
        store.close()
        status = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
consumer.ack(message)
(late,) = consumer.poll(1, timeout=30)
assert late.body == b"child", late
consumer.ack(late)
store.close()
"""


def test_a_forked_child_has_consumers_of_its_own(tmp_path: Path, engine: str):
    done = run_with_children(FORK, str(tmp_path / "s"), engine)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_table_that_cannot_be_is_an_error_that_says_where(tmp_path: Path):
    table = tmp_path / "s" / "forebay.groups"

    def damage(at: int, value: bytes) -> Callable[[], None]:
        def store() -> None:
            with table.open("r+b") as file:
                file.seek(at)
                file.write(value)

        return store

    def cut() -> None:
        os.truncate(table, 100)

    number = struct.Struct("=I").pack
    for name, harm, error in [
        ("magic", damage(0, b"X"), "no table of groups"),
        ("version", damage(8, number(1)), "no table of groups"),
        ("topics", damage(24, number(16_385)), "16385 topics"),
        ("queues", damage(28, number(1 << 31)), "queues of groups"),
        ("name", damage(69_632, number(500)), "no name"),
        ("sign", damage(69_632 + 136, b"\xff"), "no name"),
        ("entry", damage(8_458_240 + 16, number(9)), "topic entry 9"),
        ("length", cut, "100 bytes"),
    ]:
        with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
            one.consumer("orders", group="g").close()
            harm()
            for call in (
                lambda: two.consumer("orders", group="g"),
                lambda: two.groups,
            ):
                with pytest.raises(forebay.CorruptError, match=error) as caught:
                    call()
                assert caught.value.path.endswith("forebay.groups"), name
            with contextlib.suppress(OSError):
                two.close()
            with contextlib.suppress(OSError):
                one.close()


def test_any_bytes_in_the_table_give_an_answer_or_an_error(tmp_path: Path):
    """Owners, heirs, epochs, beats and locks of nobody: no crash, no hang, and the log stays."""
    draw = random.Random(18)
    for round_number in range(4):
        one, two = share(tmp_path / "s"), share(tmp_path / "s")
        fill(one)
        consumers = [store.consumer("orders", group="g") for store in (one, two)]
        with (tmp_path / "s/forebay.groups").open("r+b") as file:
            # All but the head: that is checked above.
            for begin, end in [(32, 2072), (4096, 8192), (69_632, 70_700), (8_458_240, 8_459_000)]:
                for _ in range(20):
                    file.seek(draw.randrange(begin, end))
                    file.write(draw.randbytes(draw.choice([1, 4, 8])))
        for consumer in consumers:
            for _ in range(3):
                with contextlib.suppress(forebay.ForebayError):
                    consumer.ack(consumer.poll(10, timeout=0.2))
        for store in (two, one):
            with contextlib.suppress(forebay.ForebayError):
                assert store.groups
            with contextlib.suppress(forebay.ForebayError):
                store.close()
        with forebay.open(tmp_path / "s") as store:
            assert store.verify().ok, round_number


def test_a_session_that_is_too_short_is_refused(tmp_path: Path):
    with (
        share(tmp_path / "s") as store,
        pytest.raises(forebay.InvalidOptionError, match="session_timeout must be at least 1"),
    ):
        store.consumer("orders", group="g", session_timeout=0.5)


@pytest.mark.parametrize("grown", [False, True])
def test_a_log_that_came_back_shorter_stops_the_consumers_of_all_processes(
    tmp_path: Path, grown: bool
):
    """A store is put back as it was, and its table of offsets stays."""
    if grown and "engine" in OF_ENGINE:
        pytest.skip("a partition log has no epochs that tell one log from another")
    path, copy = tmp_path / "s", tmp_path / "copy"
    with share(path) as store:
        fill(store, 8)
    store_files.copy(path, copy)
    with share(path) as store, store.consumer("orders", group="billing") as consumer:
        fill(store, 8)
        take_all(consumer, 16)
    shutil.copy(offsets_of(path), offsets_of(copy))
    with share(copy) as one, share(copy) as two:
        if grown:
            fill(two, 40)
        for store in (one, two):
            with (
                store.consumer("orders", group="billing") as consumer,
                pytest.raises(forebay.LogShrunkError, match="orders") as shrunk,
            ):
                until(lambda consumer=consumer: consumer.poll(1, timeout=1))
            assert (shrunk.value.topic, shrunk.value.path) == ("orders", None)
        with two.consumer("orders", group="billing") as consumer:
            one.reset_offsets("billing", "orders", "earliest")
            take_all(consumer, 48 if grown else 8)
