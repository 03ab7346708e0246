"""Opening and closing: modes, exits, forks, pickles, other processes and threads."""

import inspect
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path, PurePosixPath

import pytest
from harness import LONG_S

import forebay


def run(code, *arguments):
    """Run Python code in a separate process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONG_S)


def test_the_attributes_of_a_store(open_store, engine):
    store = open_store()
    assert (store.engine, store.mode, store.closed) == (engine, "a", False)
    assert isinstance(store.path, str)
    assert store.recovery.clean
    assert store.damage == []


def test_a_path_is_text_or_a_path(tmp_path):
    for path in (tmp_path / "one", str(tmp_path / "two")):
        with forebay.open(path, "x", commitlog_file_size=1 << 20) as store:
            assert store.path == str(path)
            assert store.mode == "x"
    for path in (5, None, b"bytes"):
        with pytest.raises(TypeError):
            forebay.open(path)


def test_the_memory_engine_is_selected_by_path_or_by_name():
    for store in (forebay.open(":memory:"), forebay.open("any name", engine="memory")):
        with store:
            assert store.engine == "memory"
    assert not Path("any name").exists()


def test_use_after_close_is_refused_and_closing_again_is_not(open_store):
    store = open_store()
    orders = store.producer("orders")
    orders.send(b"x", key="k")
    tail, scan, topic = store.tail("orders"), store.scan("orders"), store.topics["orders"]
    store.close()
    store.close()
    assert store.closed
    for call in (
        lambda: store.send("orders", b"x"),
        lambda: store.producer("orders"),
        lambda: orders.send(b"x"),
        lambda: orders.send_nowait(b"x"),
        lambda: orders.send_batch([b"x"]),
        lambda: store.create_topic("bills", queues=1),
        lambda: store.flush(),
        lambda: store.get("orders", 0, 0),
        lambda: store.read("orders", 0, 0),
        lambda: store.message(0),
        lambda: store.query("orders", "k"),
        lambda: store.offset_at("orders", 0, 0),
        lambda: store.tail("orders"),
        lambda: store.scan("orders"),
        lambda: scan.__arrow_c_stream__(),
        lambda: store.topics,
        lambda: topic.queues,
        lambda: store.verify(),
        lambda: store.repair(),
        lambda: store.stats(),
        lambda: store.durable_position,
        lambda: store.engine,
        lambda: store.__enter__(),
    ):
        with pytest.raises(forebay.StoreClosedError) as error:
            call()
        assert isinstance(error.value, ValueError)
        assert error.value.path == str(store.path)
        assert str(error.value) == f"the store {store.path} is closed: open it again"
    assert next(tail, None) is None


def test_an_error_in_a_with_block_passes_and_the_store_is_closed(open_store):
    store = open_store()
    with pytest.raises(KeyError), store:
        raise KeyError("mine")
    assert store.closed


def test_a_reader_reads_and_does_not_write(directory):
    with forebay.open(directory, mode="r") as store:
        assert [message.body for message in store.read("orders", 0, 0)] == [b"a", b"b", b"c"]
        assert [message.body for message in store.query("orders", "2")] == [b"b"]
        for call in (
            lambda: store.send("orders", b"x"),
            lambda: store.producer("orders"),
            lambda: store.create_topic("bills", queues=1),
            lambda: store.repair(),
        ):
            with pytest.raises(forebay.ReadOnlyError) as error:
                call()
            assert isinstance(error.value, PermissionError)


def test_modes_report_missing_and_existing_stores(tmp_path, directory):
    with pytest.raises(forebay.StoreNotFoundError) as error:
        forebay.open(tmp_path / "absent", mode="r")
    assert error.value.path == error.value.filename == str(tmp_path / "absent")
    assert isinstance(error.value, FileNotFoundError)
    with pytest.raises(forebay.StoreExistsError) as error:
        forebay.open(directory, mode="x")
    assert isinstance(error.value, FileExistsError)
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with pytest.raises(forebay.NotAStoreError) as error:
        forebay.open(file)
    assert isinstance(error.value, NotADirectoryError)
    with pytest.raises(forebay.InvalidOptionError):
        forebay.open(":memory:", mode="r")


def test_a_second_writer_gets_the_process_id_of_the_first(directory):
    with forebay.open(directory), pytest.raises(forebay.StoreLockedError) as error:
        forebay.open(directory)
    assert error.value.pid == os.getpid()
    assert isinstance(error.value, BlockingIOError)


def test_an_option_that_contradicts_the_files_shows_both_values(directory):
    with pytest.raises(forebay.InvalidOptionError, match="2097152") as error:
        forebay.open(directory, commitlog_file_size=2 << 20)
    assert error.value.name == "commitlog_file_size"
    assert "1048576" in str(error.value)


def test_readers_pickle_and_writers_refuse_with_a_hint(directory, open_store, monkeypatch):
    monkeypatch.chdir(directory.parent)
    with forebay.open(directory.name, mode="r", read_ahead=False) as store:
        monkeypatch.chdir("/")
        with pickle.loads(pickle.dumps(store)) as again:
            assert (again.mode, again.get("orders", 0, 1).body) == ("r", b"b")
    writer = open_store()
    for one in (writer, writer.scan(), writer.producer("orders")):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(one)


def test_exit_closes_what_is_open(tmp_path):
    code = """
import sys, forebay
store = forebay.open(sys.argv[1], commitlog_file_size=1 << 20)
producer = store.producer("orders", queue=0)
del store
producer.send(b"x")
tickets = [producer.send_nowait(b"y") for _ in range(10)]
tail = forebay.open(":memory:").producer("orders")
"""
    run(code, tmp_path / "store")
    with forebay.open(tmp_path / "store") as store:
        assert store.recovery.clean
        assert len(store.read("orders", 0, 0)) == 11


def test_an_unreferenced_store_is_closed(tmp_path):
    store = forebay.open(tmp_path / "store", commitlog_file_size=1 << 20)
    producer = store.producer("orders", queue=0)
    del store
    producer.send(b"x")
    del producer
    with forebay.open(tmp_path / "store") as store:
        assert store.recovery.clean
        assert store.get("orders", 0, 0).body == b"x"


def test_a_store_stays_where_it_was_opened_whatever_the_directory_is_later(tmp_path):
    code = """
import os, sys, forebay
os.chdir(sys.argv[1])
os.mkdir("elsewhere")
with forebay.open("events", commitlog_file_size=1 << 16) as store:
    store.send("orders", b"first")
    os.chdir("elsewhere")
    for _ in range(300):
        store.send("orders", b"x" * 1000)
    store.flush()
assert os.listdir(".") == []
with forebay.open("../events", mode="r") as store:
    assert sum(queue.max_offset for queue in store.topics["orders"].queues) == 301
"""
    run(code, tmp_path)


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("", {}, "name the directory"),
        (".", {"engine": "memory"}, "would not use it"),
        (":memory:", {"engine": "commitlog"}, "memory engine"),
        ("s3://bucket/prefix", {}, "forebay.archive"),
        ("file:///tmp/store", {"mode": "r"}, "local file system"),
        (PurePosixPath("gs://bucket/prefix"), {"mode": "x"}, "local file system"),
    ],
)
def test_an_unintended_path_is_refused(tmp_path, monkeypatch, path, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(forebay.InvalidOptionError, match=message):
        forebay.open(path, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_store_opens_below_a_directory_that_may_not_be_read():
    """The parent directory has mode 0711, as `/home` often does: it cannot be opened for a sync."""
    code = """
import os, sys, forebay
above = sys.argv[1]
os.mkdir(above)
os.mkdir(above + "/own")
if os.geteuid() == 0:
    os.chown(above + "/own", 65534, 65534)
    os.chmod(above, 0o733)
    os.setgid(65534)
    os.setuid(65534)
else:
    os.chmod(above, 0o333)
try:
    for path in ("/own", "/new", "/a/new/one"):
        for sent in range(2):
            with forebay.open(above + path, commitlog_file_size=1 << 20) as store:
                assert store.send("orders", b"x", queue=0, flush=True).offset == sent
finally:
    if os.geteuid() != 65534:
        os.chmod(above, 0o700)
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        run(code, Path(folder) / "above")


def test_a_handle_inherited_through_fork_refuses_to_work():
    # In a separate process, so that the fork copies none of the threads of the tests.
    code = """
import os, sys, forebay
stores = [forebay.open(":memory:"), forebay.open(sys.argv[1], commitlog_file_size=1 << 20)]
for store in stores:
    producer = store.producer("orders", queue=0)
    producer.send(b"x")
    message = store.get("orders", 0, 0)
    ticket = producer.send_nowait(b"y")
    tail = store.tail("orders", "earliest")
    child = os.fork()
    if child == 0:
        calls = [
            lambda: producer.send(b"x"),
            lambda: producer.send_nowait(b"x"),
            lambda: store.read("orders", 0, 0),
            lambda: store.flush(),
            lambda: [message for message in tail],
            lambda: store.scan("orders"),
            lambda: store.close(),
            lambda: ticket.result(),
        ]
        refused = 0
        for call in calls:
            try:
                call()
            except forebay.ForkedError as error:
                refused += isinstance(error, RuntimeError) and "in the child" in str(error)
        assert message.body == b"x"
        store.__exit__(None, None, None)  # a fork within `with store`, and the child ends
        del ticket, store, producer, tail, calls, call
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 8, status
    assert producer.send(b"z").offset == 2
    store.close()
"""
    run(code, Path(os.environ.get("TMPDIR", "/tmp")) / f"forebay-fork-{os.getpid()}")


def test_a_child_that_is_forked_while_threads_wait_can_open_a_store(tmp_path):
    code = """
import os, signal, sys, threading, forebay
root = sys.argv[1]

def at_once(call):
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def use_own_store(path):
    with forebay.open(path, flush="sync") as store:
        at_once(lambda: [store.send("orders", b"x", queue=0) for _ in range(20)])
        return len(store.read("orders", 0, 0, max_messages=100))

with forebay.open(root + "/parent", flush="sync") as store:
    stop = threading.Event()
    def send():
        while not stop.is_set():
            store.send("orders", b"x")
    def follow():
        for message in store.tail("orders"):
            pass
    for call in (send, send, follow, follow):
        threading.Thread(target=call, daemon=True).start()
    for number in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # it must not wait for a thread that it does not have
            os._exit(use_own_store(f"{root}/{number}") != 80)
        _, status = os.waitpid(child, 0)
        assert status == 0, (number, status)
    stop.set()
"""
    run(code, tmp_path)


def test_another_thread_runs_while_a_sender_waits_for_the_disk(open_store):
    # With an endless switch interval a thread runs only when another releases the interpreter: the
    # helper can count only while a send waits detached.
    store = open_store()
    orders = store.producer("orders")
    go, counted = threading.Lock(), []
    go.acquire()

    def count():
        with go:
            counted.append(True)

    helper = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    helper.start()
    sys.setswitchinterval(1e6)
    try:
        go.release()
        sends = 0
        while not counted and sends < 100_000:
            orders.send(b"x", flush=True)
            sends += 1
    finally:
        sys.setswitchinterval(interval)
    helper.join()
    assert sends < 100_000


def test_threads_send_and_read_through_one_handle(store):
    store.create_topic("orders", queues=2)
    ready = threading.Barrier(4)
    failures = []

    def work(number):
        try:
            orders = store.producer("orders", queue=number % 2)
            ready.wait()
            for index in range(500):
                result = orders.send(b"%d:%d" % (number, index))
                body = store.get("orders", result.queue, result.offset).body
                assert body == b"%d:%d" % (number, index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for queue in (0, 1):
        batch = store.read("orders", queue, 0, max_messages=2000)
        assert [message.offset for message in batch] == list(range(1000))
        for number in (queue, queue + 2):
            sent = [message.body for message in batch if message.body.startswith(b"%d:" % number)]
            assert sent == [b"%d:%d" % (number, index) for index in range(500)]


def test_help_shows_signatures():
    for owner in (forebay.Store, forebay.Producer):
        for name, method in vars(owner).items():
            if not name.startswith("_") and callable(method):
                assert "self" in inspect.signature(method).parameters, name
                assert method.__doc__, name
    send = inspect.signature(forebay.Producer.send)
    assert send.parameters["delay_level"].default == 0
