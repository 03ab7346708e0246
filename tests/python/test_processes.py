"""Stores that several processes, or several handles, write at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from processes import run_with_children

import forebay
from forebay import _forebay

#: What an opening names, by engine.
ENGINES: dict[str, dict[str, object]] = {
    "commitlog": {"commitlog_file_size": 64 << 10},
    "partitionlog": {"engine": "partitionlog", "segment_bytes": 64 << 10},
}
#: On a busy machine a process may be off its CPU for long while it holds the append lock.
SMALL: dict[str, object] = {"default_queues": 2, "busy_timeout": 60}


@pytest.fixture(autouse=True, params=list(ENGINES))
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in ENGINES[request.param].items():
        monkeypatch.setitem(SMALL, name, value)
    return request.param


def share(path: Path, **options: object) -> forebay.Store:
    return forebay.open(path, mode="share", **{**SMALL, **options})


def lock_of(path: Path) -> Path:
    return path / (".lock" if "engine" in SMALL else "lock")


def bodies(store: forebay.Store, topic: str, queue: int) -> list[bytes]:
    return [message.body for message in store.read(topic, queue=queue, offset=0, max_messages=9999)]


def test_handles_take_turns(tmp_path: Path):
    """Each send continues where the other handle stopped, also in another log file."""
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        assert one.mode == "share"
        sent = []
        for number in range(400):
            store = (one, two)[number % 3 == 0]
            sent.append(store.send("orders", b"%d" % number + b"x" * 300, queue=0))
        assert [result.offset for result in sent] == list(range(400))
        positions = [result.position for result in sent]
        if "engine" in SMALL:
            # Of a segment.
            assert positions.count(0) > 2
        else:
            assert positions == sorted(set(positions))
            assert positions[-1] > 2 * (64 << 10)
        assert bodies(one, "orders", 0) == bodies(two, "orders", 0)
        with forebay.open(tmp_path / "s", mode="r") as reader:
            assert bodies(reader, "orders", 0) == bodies(one, "orders", 0)
    with forebay.open(tmp_path / "s") as store:
        assert store.recovery.clean
        assert store.verify().ok
        assert len(bodies(store, "orders", 0)) == 400


def test_batches_are_contiguous(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        one.producer("orders", queue=0).send_batch([b"a"] * 10)
        sent = two.producer("orders", queue=0).send_batch([b"b"] * 10, atomic=True)
        assert sent.ranges == {0: range(10, 20)}
        assert bodies(one, "orders", 0) == [b"a"] * 10 + [b"b"] * 10


def test_a_message_can_be_read_at_once(tmp_path: Path):
    """The services run in the first handle; the second waits for them."""
    with share(tmp_path / "s"), share(tmp_path / "s") as two:
        for number in range(50):
            sent = two.send("orders", b"%d" % number, key=f"k{number}")
            assert two.get("orders", sent.queue, sent.offset).body == b"%d" % number
            assert [found.body for found in two.query("orders", key=f"k{number}")] == [
                b"%d" % number
            ]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_who_remains_takes_the_services_over(tmp_path: Path, flush: str):
    one, two = share(tmp_path / "s", flush=flush), share(tmp_path / "s", flush=flush)
    one.send("orders", b"a", queue=0)
    one.close()
    sent = two.send("orders", b"b", queue=0, flush=True)
    assert sent.offset == 1
    assert sent.durable
    assert bodies(two, "orders", 0) == [b"a", b"b"]
    two.close()
    with forebay.open(tmp_path / "s") as store:
        assert store.recovery.clean
        assert bodies(store, "orders", 0) == [b"a", b"b"]


def test_topics_are_known_to_all(tmp_path: Path):
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        one.create_topic("orders", queues=5)
        assert two.topics["orders"].write_queues == 5
        two.send("orders", b"x", queue=4)
        two.create_topic("orders", queues=7)
        one.send("orders", b"y", queue=6)
        one.send("bills", b"z")
        assert two.topics["bills"].write_queues == 2
    with forebay.open(tmp_path / "s") as store:
        assert store.topics["orders"].write_queues == 7


def test_one_writer_and_many_exclude_each_other(tmp_path: Path):
    with (
        share(tmp_path / "s"),
        pytest.raises(forebay.StoreLockedError, match='mode="share"') as caught,
    ):
        forebay.open(tmp_path / "s")
    assert caught.value.pid == os.getpid()
    with (
        forebay.open(tmp_path / "s"),
        pytest.raises(forebay.StoreLockedError, match='mode="share"'),
    ):
        share(tmp_path / "s")
    with share(tmp_path / "s") as store:
        store.send("orders", b"x")


def is_free(path: Path, byte: int) -> bool:
    """Return whether nobody has locked a byte of the file `lock`."""
    with lock_of(path).open() as file:
        asked = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
    return struct.unpack_from("h", answer)[0] == fcntl.F_UNLCK


def stop_outside_the_gate(process: subprocess.Popen[bytes], path: Path) -> bool:
    """Stop a process that joins at a moment when others can join."""
    for _ in range(200):
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        if is_free(path, 251):
            return True
        os.kill(process.pid, signal.SIGCONT)
    return False


def has_open(process: subprocess.Popen[bytes], file: Path) -> bool:
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if link.readlink() == file:
                return True
    return False


def test_who_waits_for_the_lock_does_not_hold_up_others_that_join(tmp_path: Path):
    """The one that waits may be stopped, and may wait for longer than the others want to."""
    path = tmp_path / "s"
    alone = forebay.open(path, **SMALL)
    code = "import sys, forebay; forebay.open(sys.argv[1], mode='share', lock_timeout=600)"
    waiter = subprocess.Popen([sys.executable, "-c", code, path])
    try:
        while not has_open(waiter, lock_of(path)):
            assert waiter.poll() is None
        assert stop_outside_the_gate(waiter, path)
        with pytest.raises(forebay.StoreLockedError):
            share(path)
        alone.close()
        share(path).close()
        os.kill(waiter.pid, signal.SIGCONT)
        assert waiter.wait() == 0
    finally:
        waiter.kill()
        waiter.wait()


def test_what_processes_cannot_share_is_refused_by_name(tmp_path: Path):
    with pytest.raises(forebay.InvalidOptionError, match="transient_pool"):
        share(tmp_path / "pool", transient_pool=2)
    with pytest.raises(forebay.InvalidOptionError, match="share"):
        forebay.open(":memory:", mode="share")
    with share(tmp_path / "s") as store:
        store.send("orders", b"x")
        with pytest.raises(forebay.UnsupportedError, match=r"repairing .* mode=\"a\""):
            store.repair()
        if "engine" in SMALL:
            with pytest.raises(forebay.UnsupportedError, match=r"compacting .* mode=\"a\""):
                store.compact()
            with pytest.raises(forebay.UnsupportedError, match=r"deleting .* mode=\"a\""):
                store.delete_before("orders", "latest")
            with pytest.raises(forebay.UnsupportedError, match=r"compaction.* mode=\"a\""):
                share(tmp_path / "s", cleanup_policy="compact")
            with pytest.raises(forebay.InvalidOptionError, match="segment_bytes"):
                share(tmp_path / "s", segment_bytes=128 << 10)


def test_whoever_joins_has_the_same_options(tmp_path: Path):
    with share(tmp_path / "s", flush="sync"):
        with pytest.raises(forebay.InvalidOptionError, match="flush"):
            share(tmp_path / "s", flush="async")
        with forebay.open(tmp_path / "s", mode="share") as other:
            assert other.send("orders", b"x").durable


#: Options of retention, each with another value.
RETENTION: dict[str, tuple[object, object]] = {
    "retention": (3600, 60),
    "retention_bytes": (1 << 30, 1 << 20),
    "disk_reserve": (1 << 20, 0),
    "disk_warning_ratio": (0.9, 0.5),
    "delete_when": ("04", "05"),
    "keep_unconsumed": (False, None),
    "keep_unarchived": (True, None),
    "roll_after": (60, 3600),
}


def test_whoever_joins_has_the_same_retention(tmp_path: Path, engine: str):
    # A partition log has no retention by the space of the disk.
    none = {"disk_reserve", "disk_warning_ratio"} if engine == "partitionlog" else set()
    given = {name: value for name, (value, _) in RETENTION.items() if name not in none}
    with share(tmp_path / "s", **given), share(tmp_path / "s"), share(tmp_path / "s", **given):
        for name, (_, other) in RETENTION.items():
            if other is not None and name in given:
                with pytest.raises(forebay.InvalidOptionError, match=name):
                    share(tmp_path / "s", **{**given, name: other})
    # Whoever is first again decides what it gives, and others may give more.
    with (
        share(tmp_path / "s", retention=60),
        share(tmp_path / "s", roll_after=60),
        pytest.raises(forebay.InvalidOptionError, match=r"roll_after is 30: .*60"),
    ):
        share(tmp_path / "s", roll_after=30)


def test_one_process_takes_up_commits_for_all(tmp_path: Path):
    with share(tmp_path / "s") as leader, share(tmp_path / "s") as other:
        stager = _forebay.Stager(tmp_path / "s", "q", "orders")
        stager.write(pyarrow.record_batch({"key": ["a"], "value": [b"x"]}))
        assert _forebay.publish_commit(tmp_path / "s", "q", 0, "batch", [stager.finish()])
        _forebay.take_commits(other)
        for store in (leader, other):
            assert [one.body for one in store.tail("orders", start="earliest", follow=False)] == [
                b"x"
            ]


#: Sends numbered messages without pause once it is told to, and says how far it is.
BUSY_SENDER = """
import sys, forebay
path, name, options = sys.argv[1:4]
with forebay.open(path, mode="share", **eval(options)) as store:
    orders = store.producer("orders", queue=0)
    print("ready", flush=True)
    input()
    number = 0
    while True:
        for _ in range(100):
            orders.send(b"%s %d" % (name.encode(), number))
            number += 1
        print(number, flush=True)
"""


def test_no_sender_is_kept_from_sending_by_others_that_never_pause(tmp_path: Path):
    with share(tmp_path / "s") as store, contextlib.ExitStack() as ended:
        senders = []
        for name in "abc":
            pipe = subprocess.PIPE
            command = [sys.executable, "-c", BUSY_SENDER, str(tmp_path / "s"), name, repr(SMALL)]
            sender = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            ended.callback(sender.communicate)
            ended.callback(sender.kill)
            senders.append(sender)
        for sender in senders:
            assert sender.stdout
            assert sender.stdout.readline() == "ready\n"
        for sender in senders:
            print(file=sender.stdin, flush=True)
        # If one of them got no turn, this would not end.
        for number in range(300):
            store.send("orders", b"d %d" % number, queue=0)
        for _ in range(3):
            for sender in senders:
                assert sender.stdout.readline()
        ended.close()
        found: dict[bytes, int] = {}
        for message in store.tail("orders", start="earliest", follow=False):
            name, number = message.body.split()
            assert int(number) == found.get(name, 0), message
            found[name] = int(number) + 1
        assert found.pop(b"d") == 300
        assert all(found[name] >= 300 for name in (b"a", b"b", b"c")), found


OWNER = """
import sys, forebay
store = forebay.open(sys.argv[1], mode="share", default_queues=2, busy_timeout=60)
own = store.producer("orders", queue="own", name=sys.argv[2])
print(own.send(b"x").queue, flush=True)
sys.stdin.read()
"""


def test_a_queue_has_one_owner_in_all_processes(tmp_path: Path):
    def owner(name: str) -> tuple[subprocess.Popen[str], int]:
        child = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path / "s"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout
        return child, int(child.stdout.readline())

    with share(tmp_path / "s") as store:
        mine = store.producer("orders", queue="own", name="anna")
        other, queue = owner("ben")
        assert (mine.send(b"x").queue, queue) == (0, 1)
        with pytest.raises(forebay.InvalidOptionError, match="anna, ben"):
            store.producer("orders", queue="own", name="carl")
        newer, queue = owner("anna")
        assert queue == 0
        with pytest.raises(forebay.OwnershipLostError, match="anna"):
            mine.send(b"x")
        for child in (other, newer):
            child.kill()
            child.communicate()
        names = ("carl", "dora")
        carl, dora = (store.producer("orders", queue="own", name=name) for name in names)
        assert {carl.send(b"x").queue, dora.send(b"x").queue} == {0, 1}
        assert len(bodies(store, "orders", 0)) == 3


FORK = """
import os, sys, threading, forebay
path = sys.argv[1]
store = forebay.open(
    path, mode="share", engine=sys.argv[2], default_queues=2, busy_timeout=60
)
orders = store.producer("orders", queue=0)
topic = store.create_topic("bills", queues=3)
store.create_topic("others", queues=1)
orders.send(b"parent")
tail = store.tail("orders")
over = threading.Event()
def send():
    while not over.is_set():
        store.send("noise", b"x")
threads = [threading.Thread(target=send, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()

def child(name):
    # A topic that only this process has met, so that numbers of topics differ.
    store.send(f"only-{name}", b"x")
    first = orders.send(name.encode())
    orders.send_batch([b"%s-%d" % (name.encode(), row) for row in range(3)])
    ticket = orders.send_nowait(b"%s-late" % name.encode())
    ticket.result(30)
    assert store.get("orders", 0, first.offset).body == name.encode()
    assert [queue.id for queue in topic.queues] == [0, 1, 2], topic.queues
    assert store.topics["bills"].write_queues == 3
    try:
        next(iter(tail))
    except forebay.ForkedError:
        pass
    else:
        raise AssertionError("a tail came through fork")
    if len(name) < 4:
        fork(name + "a")
    store.close()
    try:
        store.send("orders", b"never")
    except forebay.StoreClosedError:
        pass
    else:
        raise AssertionError("a closed store sends")

def fork(name):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(name)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (name, status)

for number in range(4):
    fork("c%d" % number)
over.set()
for thread in threads:
    thread.join()
orders.send(b"last")
bodies = [m.body for m in store.read("orders", queue=0, offset=0, max_messages=999)]
assert len(bodies) == 1 + 4 * 3 * 5 + 1, bodies
assert len(set(bodies)) == len(bodies)
store.close()
with forebay.open(path) as store:
    assert store.recovery.clean
    assert store.verify().ok
"""


def test_a_shared_store_goes_on_in_forked_children(tmp_path: Path, engine: str):
    """Also in their children, and while threads of the parent send."""
    done = run_with_children(FORK, str(tmp_path / "s"), engine)
    assert done.returncode == 0, done.stderr


#: Where the state page has the append lock, and what the processes tell one another.
AT_LOCK, AT_PUBLISHED, AT_WANTED_END = 704, 128, 840


@pytest.mark.parametrize("word", [3, 250, 251, 511, 1 << 10, (1 << 64) - 1])
def test_an_append_lock_that_names_nobody_is_taken_over(tmp_path: Path, word: int):
    share(tmp_path / "s").close()
    if "engine" not in SMALL:
        # The page of a partition log lives as long as the processes.
        poke(tmp_path / "s", AT_LOCK, word)
    with share(tmp_path / "s") as one, share(tmp_path / "s") as two:
        one.send("orders", b"a", queue=0)
        poke(tmp_path / "s", AT_LOCK, word)
        two.send("orders", b"b", queue=0)
        assert bodies(two, "orders", 0) == [b"a", b"b"]


@pytest.mark.parametrize("wrong", [-(1 << 20), -1, 7, 1 << 62])
def test_a_published_end_that_is_wrong_ends_sends(tmp_path: Path, wrong: int):
    """Every process that sees the wrong end stops sending, and none dies or hangs."""
    two = share(tmp_path / "s")
    one = share(tmp_path / "s")
    one.send("orders", b"a", queue=0)
    # What is durable already does not hide that the process has failed.
    two.send("orders", b"b", queue=0, flush=True)
    end = peek(tmp_path / "s", AT_PUBLISHED)
    poke(tmp_path / "s", AT_PUBLISHED, max(0, end + wrong))
    if "engine" in SMALL and wrong == 7:
        # In a partition log the end only counts bytes; no message is found by it.
        assert two.send("orders", b"c", queue=0, flush=True).offset == 2
        one.close()
        two.close()
        return
    with pytest.raises((forebay.CorruptError, forebay.StoreFailedError)):
        two.send("orders", b"c", queue=0)
    poke(tmp_path / "s", AT_PUBLISHED, end)
    poke(tmp_path / "s", AT_WANTED_END, (1 << 64) - 1)
    with pytest.raises(forebay.StoreFailedError):
        two.send("orders", b"c", queue=0)
    with pytest.raises(forebay.StoreFailedError):
        two.close()
    with contextlib.suppress(forebay.StoreFailedError):
        one.close()
    with forebay.open(tmp_path / "s") as store:
        assert bodies(store, "orders", 0) == [b"a", b"b"]


def page_of(path: Path) -> Path:
    return path / ("forebay.shared" if "engine" in SMALL else "forebay.state")


def poke(path: Path, at: int, word: int) -> None:
    with page_of(path).open("r+b") as page:
        page.seek(at)
        page.write(struct.pack("=Q", word))


def peek(path: Path, at: int) -> int:
    with page_of(path).open("rb") as page:
        page.seek(at)
        return struct.unpack("=Q", page.read(8))[0]
