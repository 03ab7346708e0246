"""Consumers that wait for another process: for its queues, and for the table of progress."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from harness import LONG_S
from holding import AT_APPEND, AT_OWNERS, begin_again, check_an_end, held, running

pytestmark = pytest.mark.usefixtures("uncollected")

#: Shares the store with a message that is not settled; once it is told to go on, calls what another
#: process holds up.
CONSUMES = f"""
import sys, forebay
with forebay.open(sys.argv[1], mode="share", busy_timeout=3600) as store:
    store.send("orders", b"x")
    consumer = store.consumer("orders", group="billing")
    (message,) = consumer.poll(timeout={LONG_S})
    late = store.consumer("orders", group="late")
    print("ready", flush=True)
    input()
    try:
        print("waits", flush=True)
        STATEMENT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
    consumer.ack(message)
    print(sum(queue.lag for queue in store.groups["billing"]), flush=True)
"""


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("consumer.nack(message)", {"forebay.state": AT_APPEND}),
        ("consumer.reject(message)", {"forebay.state": AT_APPEND}),
        ("store.consumer('new', group='billing')", {"forebay.state": AT_APPEND}),
        ("store.consumer('orders', group='other')", {"forebay.groups": AT_OWNERS}),
        ("late.seek('earliest')", {"forebay.groups": AT_OWNERS}),
        ("late.close()", {"forebay.groups": AT_OWNERS}),
        ("store.reset_offsets('new', 'orders', 'latest')", {"forebay.groups": AT_OWNERS}),
        ("store.producer('new', queue='own', name='anna')", {"forebay.state": AT_APPEND}),
        ("store.producer('orders', queue='own', name='anna')", {"forebay.groups": AT_OWNERS}),
    ],
)
def test_ctrl_c_ends_what_a_consumer_waits_for(tmp_path: Path, statement, words):
    path = tmp_path / "store"
    with running(CONSUMES.replace("STATEMENT", statement), path) as process:
        check_an_end(process, held(process, path, "lock", words))


#: Iterates. Another process changes the owners meanwhile, and resets the group.
ITERATES = """
import sys, forebay
with forebay.open(sys.argv[1], mode="share", busy_timeout=3600) as store:
    store.send("orders", b"x")
    messages = iter(store.consumer("orders", group="billing"))
    next(messages)
    print("ready", flush=True)
    input()
    try:
        print("waits", flush=True)
        next(messages)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
    try:
        print(len(next(messages).body), flush=True)
    except forebay.OwnershipLostError:
        print(0, flush=True)
"""


@contextlib.contextmanager
def reset(process: Popen[str], path: Path) -> Iterator[None]:
    """Stand for a process that changes the owners and has reset all groups."""
    with held(process, path, "lock", {"forebay.groups": AT_OWNERS}):
        begin_again(path)
        yield


def test_what_was_not_acknowledged_because_of_ctrl_c_is_acknowledged_next(tmp_path: Path):
    """It was forgotten, so nobody learned that it comes again."""
    path = tmp_path / "store"
    with running(ITERATES, path) as process:
        check_an_end(process, reset(process, path))


#: Consumes, and once it is told to go on, saves progress.
SAVES = f"""
import sys, forebay
from forebay._forebay import record_offsets
with forebay.open(sys.argv[1], mode=sys.argv[2]) as store:
    store.send("orders", b"x")
    consumer = store.consumer("orders", group="billing")
    (message,) = consumer.poll(timeout={LONG_S})
    consumer.commit()
    print("ready", flush=True)
    input()
    consumer.ack(message)
    try:
        print("waits", flush=True)
        STATEMENT
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    input()
    print(sum(queue.lag for queue in store.groups["billing"]), flush=True)
"""


@pytest.mark.parametrize("mode", ["a", "share"])
@pytest.mark.parametrize(
    "statement",
    [
        "consumer.commit()",
        "consumer.close()",
        "store.reset_offsets('billing', 'orders', 'latest')",
        "record_offsets(sys.argv[1], 'spark', {('orders', 0): 1})",
    ],
)
def test_ctrl_c_ends_the_saving_of_progress_that_another_process_holds_up(
    tmp_path: Path, mode: str, statement: str
):
    path = tmp_path / "store"
    with running(SAVES.replace("STATEMENT", statement), path, mode) as process:
        check_an_end(process, held(process, path, "config/consumerOffset.lock", {}, 0))


#: Consumes, and once it is told to go on, closes the store.
CLOSES = f"""
import sys, forebay
store = forebay.open(sys.argv[1], mode=sys.argv[2])
store.send("orders", b"x")
consumer = store.consumer("orders", group="billing")
(message,) = consumer.poll(timeout={LONG_S})
consumer.commit()
print("ready", flush=True)
input()
consumer.ack(message)
try:
    print("waits", flush=True)
    store.close()
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
with forebay.open(sys.argv[1], mode="r") as store:
    # The message will be delivered again.
    print(sum(queue.lag for queue in store.groups["billing"]) - 1, flush=True)
"""


@pytest.mark.parametrize("mode", ["a", "share"])
def test_ctrl_c_ends_the_saving_of_progress_by_a_store_that_closes(tmp_path: Path, mode: str):
    path = tmp_path / "store"
    with running(CLOSES, path, mode) as process:
        check_an_end(process, held(process, path, "config/consumerOffset.lock", {}, 0))


#: Holds a message of each of four queues, two of which go to another consumer.
GIVES = f"""
import sys, time, forebay
with forebay.open(sys.argv[1], mode="share") as store:
    store.create_topic("orders", queues=4)
    for queue in range(4):
        store.producer("orders", queue=queue).send(b"x")
    one, held = store.consumer("orders", group="billing"), []
    end = time.monotonic() + {LONG_S}
    while len(held) < 4 and time.monotonic() < end:
        held += one.poll(4 - len(held), timeout={LONG_S})
    two = store.consumer("orders", group="billing")
    print("ready", flush=True)
    input()
    one.ack(held)
    print("acknowledged", flush=True)
    input()
    for queue in range(4):
        store.producer("orders", queue=queue).send(b"y")
    more = []
    end = time.monotonic() + {LONG_S}
    while len(more) < 2 and time.monotonic() < end:
        more += two.poll(timeout={LONG_S})
    print(len(more), flush=True)
"""


def test_queues_go_to_their_heir_once_the_table_of_groups_is_free(tmp_path: Path):
    path = tmp_path / "store"
    with running(GIVES, path) as process:
        assert process.stdout.readline() == "ready\n"
        with held(process, path, "lock", {"forebay.groups": AT_OWNERS}):
            print(file=process.stdin, flush=True)
            assert process.stdout.readline() == "acknowledged\n"
        assert process.communicate("\n", timeout=LONG_S)[0] == "2\n"
