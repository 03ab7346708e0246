"""The examples run unchanged, with warnings as errors, and lose nothing if they are killed."""

import contextlib
import http.client
import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness import LONG_S, lacks

import forebay

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_unchanged(example: Path) -> None:
    needed = example.stem.rpartition("_")[2]
    if needed == "gunicorn" and find_spec(needed) is None:
        lacks(needed, "gunicorn is not installed")
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5


#: Runs an example whose process is killed after this many sends. It prints what was acknowledged.
KILLED = """
import os, runpy, signal, sys, threading, forebay

open_store, lock, left = forebay.open, threading.Lock(), int(sys.argv[2])

class Around:
    def __init__(self, plain):
        self.plain = plain

    def __getattr__(self, name):
        return getattr(self.plain, name)

class Producer(Around):
    def send(self, body, **given):
        global left
        sent = self.plain.send(body, **given)
        os.write(1, b"%d %d %s\\n" % (sent.queue, sent.offset, body))
        with lock:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return sent

class Store(Around):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.plain.close()

    def producer(self, *given, **named):
        return Producer(self.plain.producer(*given, **named))

forebay.open = lambda *given, **named: Store(open_store(*given, **named))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def check_acknowledged(path: Path, topic: str, lines: list[bytes]) -> None:
    """Check that a store has each of these messages: queue, offset and body."""
    acknowledged = [line.split(b" ", 2) for line in lines]
    with forebay.open(path) as store:
        for queue, offset, body in acknowledged:
            assert store.get(topic, int(queue), int(offset)).body == body
        assert store.verify().ok
        assert sum(queue.max_offset for queue in store.topics[topic].queues) >= len(lines)


@pytest.mark.parametrize(
    ("name", "topic", "sends"), [("web_capture", "clicks", 150), ("worker_queue", "mails", 40)]
)
def test_a_killed_example_has_what_it_acknowledged(tmp_path, name, topic, sends):
    command = [sys.executable, "-c", KILLED, str(EXAMPLES[0].with_stem(name)), str(sends)]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    (path,) = (found.parent for found in tmp_path.glob("*/*/commitlog"))
    lines = done.stdout.splitlines()
    assert len(lines) >= sends
    check_acknowledged(path, topic, lines)


def post(port: int, body: bytes) -> bytes | None:
    """Return queue and offset of an event, with its body; None if the server has ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", "/", body=body)
        answer = connection.getresponse()
        place = answer.read()
        return place + b" " + body if answer.status == 200 else None
    return None


def test_a_killed_server_and_its_workers_have_what_they_answered(tmp_path):
    """The whole group dies at once, as with the cgroup of a container."""
    if find_spec("gunicorn") is None:
        lacks("gunicorn", "gunicorn is not installed")
    example = str(EXAMPLES[0].with_stem("prefork_gunicorn"))
    command = [sys.executable, "-W", "ignore", example, str(tmp_path / "events")]
    answered: list[bytes] = []

    def client(port: int, number: int) -> None:
        for event in itertools.count():
            found = post(port, b"client %d event %d" % (number, event))
            if found is None:
                return
            answered.append(found)
            if len(answered) >= 60:
                os.killpg(server.pid, signal.SIGKILL)

    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as server:
        port = int(server.stdout.readline())
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(client, [port] * 4, range(4)))
    assert len(answered) >= 60
    check_acknowledged(tmp_path / "events", "events", answered)
