"""A store's statistics of puts and flushes, and warnings about slow puts in Python's log."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest
from harness import LONG_S

import forebay


def test_latencies_are_seconds_in_buckets(tmp_path):
    with forebay.open(tmp_path / "store") as store:
        orders = store.producer("orders", queue=0)
        for _ in range(100):
            orders.send(b"body")
        orders.send_batch([b"body"] * 50)
        stats = store.stats()
    puts = stats.put_latency
    assert puts.count == sum(count for _, count in puts.buckets) == 101
    assert 0 < puts.p50 <= puts.p99 <= puts.p999 <= puts.max < 60
    assert 0 < puts.mean <= puts.max
    assert [end for end, _ in puts.buckets] == sorted(end for end, _ in puts.buckets)
    assert stats.encode_time > 0
    assert stats.append_time > 0
    assert stats.messages_per_second > 1
    assert stats.recent_bytes_per_second > 100
    assert stats._asdict()["slow_puts"] == stats.busy == 0
    assert stats.log_bytes >= stats.published
    assert stats.disk_free > 0


def test_waiting_for_the_disk_is_counted_separately(tmp_path):
    with forebay.open(tmp_path / "store", flush="sync") as store:
        for _ in range(5):
            store.send("orders", b"body")
        store.producer("orders").send_nowait(b"body").result(LONG_S)
        stats = store.stats()
    assert stats.flush_behind == 0
    assert 1 <= stats.flush_wait.count <= 6
    assert stats.flush_wait.max >= stats.flush_wait.p50 > 0
    assert stats.flushes >= 1
    assert stats.flush_time >= stats.longest_flush > 0


@pytest.mark.parametrize("kind", ["mutex", "spin"])
def test_the_append_lock_may_sleep_or_spin(tmp_path, kind):
    with forebay.open(tmp_path / "store", append_lock=kind) as store:
        assert store.send("orders", b"body").offset == 0


def test_another_append_lock_is_refused(tmp_path):
    with pytest.raises(forebay.InvalidOptionError, match="append_lock"):
        forebay.open(tmp_path / "store", append_lock="fair")
    with pytest.raises(TypeError, match="append_lock"):
        forebay.open(tmp_path / "store", append_lock=True)


SENDER = """
    import logging, sys, forebay

    def fail(record):
        raise RuntimeError("a handler that fails")

    logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
    logging.raiseExceptions = False
    if sys.argv[1] == "fails":
        handler = logging.getLogger("forebay")
        handler.handle = fail
    body = bytes(60 << 20)
    with forebay.open(":memory:", max_message_size=60 << 20) as store:
        orders = store.producer("orders", queue=0)
        print("ready", flush=True)
        for _ in range(10):
            orders.send(body)
            slow = store.stats().slow_puts
            if slow:
                break
    print("slow", slow, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped here")
@pytest.mark.parametrize("handler", ["works", "fails"])
def test_a_slow_put_is_logged_by_the_call_that_made_it(handler):
    # A memory store: no disk can slow it down, and no file can fill up.
    program = textwrap.dedent(SENDER)
    command = [sys.executable, "-c", program, handler]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "ready\n"
        # Each put takes about 50 ms with almost no time in between, so a stop falls into one; on a
        # busy machine, if not into the first, then into the next.
        while child.poll() is None:
            time.sleep(0.02)
            child.send_signal(signal.SIGSTOP)
            time.sleep(0.7)
            child.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=0.3)
        out, errors = child.communicate()
    assert child.returncode == 0, errors
    lines = out.splitlines()
    assert lines[-1] == "slow 1"
    if handler == "works":
        assert len(lines) == 2
        assert lines[0].startswith("forebay WARNING slow put: 1 message(s), 629")
        assert " bytes, to topic orders took " in lines[0]
    else:
        # An exception in the logger is shown, and does not reach the sender.
        assert "a handler that fails" in errors


UNLOCKED = """
import forebay, logging, os, resource, sys

logging.basicConfig(format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
if os.geteuid() == 0:
    # The superuser has no limit on locked memory.
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
with forebay.open(sys.argv[1], lock_memory=True, commitlog_file_size=1 << 20) as store:
    for number in range(40):
        assert store.send("orders", bytes(100_000), queue=0).offset == number
with forebay.open(sys.argv[1]) as store:
    print(store.verify().records, "records")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_files_that_cannot_be_locked_are_logged():
    """A failed lock left a log file under its name, which made every later send fail."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        command = [sys.executable, "-c", UNLOCKED, f"{folder}/store"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[-1] == "40 records"
    assert len(lines) == 2
    assert lines[0].startswith("forebay WARNING lock_memory: cannot lock ")


WRITER = """
import forebay, sys
path, mode, engine = sys.argv[1:]
with forebay.open(path, mode, engine=engine) as store:
    for number in range(100):
        store.send("orders", b"%d" % number, flush=number == 99)
    print("sent", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def writing(path, engine, mode="a"):
    """Yield a process that has sent 100 messages; it closes the store at the end of its input."""
    command = [sys.executable, "-c", WRITER, str(path), mode, engine]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout.readline() == "sent\n"
        try:
            yield child
        finally:
            child.kill()


def shown(store):
    """Return the statistics of the writer once it has shown those of 100 messages."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        writer = store.stats().writer
        if writer is not None and writer.messages_sent == 100:
            return writer
        time.sleep(0.05)
    raise AssertionError(f"the writer shows {store.stats().writer}")


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_a_reader_sees_how_long_the_sends_of_a_live_writer_take(tmp_path, engine):
    path = tmp_path / "store"
    with writing(path, engine) as child, forebay.open(path, mode="r") as store:
        writer = shown(store)
        assert writer.pid == child.pid
        puts, waits = writer.put_latency, writer.flush_wait
        assert (puts.count, waits.count, puts.buckets) == (100, 1, [])
        assert 0 < puts.p50 <= puts.p99 <= puts.p999 <= puts.max < 60
        assert 0 < puts.mean <= puts.max
        assert writer.flushes >= 1
        assert writer.bytes_sent == store.stats().published
        assert 0 <= writer.age < LONG_S
        assert writer.recent_messages_per_second > 0
        own = store.stats()
        assert (own.messages_sent, own.put_latency.count) == (0, 0)
        assert pickle.loads(pickle.dumps(own)).writer == own.writer
        assert f"process {child.pid}" in own._repr_html_()
        # The marks of a writer that was killed stay, and so does what it has shown.
        child.kill()
        child.wait()
        assert store.stats().writer is None


@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_a_writer_that_closed_shows_nothing_and_the_next_one_its_own(tmp_path, engine):
    path = tmp_path / "store"
    with writing(path, engine) as child, forebay.open(path, mode="r") as store:
        shown(store)
        child.communicate("")
        assert store.stats().writer is None
        with writing(path, engine) as other:
            assert shown(store).pid == other.pid
        with forebay.open(path) as own:
            own.send("orders", b"body")
            assert own.stats().writer is None


@pytest.mark.skipif(sys.platform != "linux", reason="stores are shared on Linux")
@pytest.mark.parametrize("ends", ["killed", "closed"])
@pytest.mark.parametrize("engine", ["commitlog", "partitionlog"])
def test_in_a_shared_store_the_process_that_leads_shows_its_statistics(tmp_path, engine, ends):
    path = tmp_path / "store"
    with (
        writing(path, engine, "share") as child,
        forebay.open(path, "share") as store,
        forebay.open(path, "r") as reader,
    ):
        assert shown(store).pid == shown(reader).pid == child.pid
        if ends == "killed":
            child.kill()
        child.communicate("")
        # This process may lead already.
        writer = reader.stats().writer
        assert writer is None or writer.pid == os.getpid()
        assert store.stats().writer is None
        for _ in range(100):
            store.send("orders", b"body")
        assert shown(reader).pid == os.getpid()
        # The one that leads is named, and not the one that began.
        with pytest.raises(forebay.StoreLockedError) as error:
            forebay.open(path)
        assert error.value.pid == os.getpid()


@pytest.mark.parametrize("rest", [100, 4096])
def test_a_page_that_another_writer_has_left_is_used_and_not_believed(tmp_path, rest):
    """A power loss may leave it without some of its bytes."""
    path = tmp_path / "store"
    with forebay.open(path, mode="x", engine="partitionlog"):
        pass
    with writing(tmp_path / "other", "partitionlog"):
        with forebay.open(tmp_path / "other", mode="r") as store:
            shown(store)
        left = (tmp_path / "other" / "forebay.meters").read_bytes()
    (path / "forebay.meters").write_bytes(left[:rest])
    with writing(path, "partitionlog") as child, forebay.open(path, mode="r") as store:
        assert shown(store).pid == child.pid
