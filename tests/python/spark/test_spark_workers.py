"""How the tests start Spark's Python workers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import spark_workers

#: Shows what it was started with, and waits.
WORKER = """
import json, os, sys
forked = "pyspark.worker" in sys.modules
seen = [os.getpid(), os.getcwd(), sys.argv[1:], os.environ.get("GIVEN"), forked]
print(json.dumps(seen), flush=True)
sys.stdin.readline()
"""


def start(folder: Path, **environment: str) -> "subprocess.Popen[str]":
    (folder / "waits.py").write_text(WORKER)
    command = [sys.executable, spark_workers.__file__, sys.executable, "-m", "waits", "a", "b c"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | environment, **pipes)


def seen(client: "subprocess.Popen[str]") -> list[Any]:
    assert client.stdout is not None
    return json.loads(client.stdout.readline())


def test_a_worker_is_a_fork_with_the_files_arguments_and_environment_of_its_client(tmp_path: Path):
    with start(tmp_path, GIVEN="x") as client:
        pid, *rest = seen(client)
        assert pid != client.pid
        assert rest == [str(tmp_path), ["a", "b c"], "x", True]
        client.communicate("end\n")
    assert client.returncode == 0


def test_without_a_server_the_client_becomes_the_worker(tmp_path: Path):
    with start(tmp_path, **{spark_workers.ADDRESS: "nobody"}) as client:
        assert seen(client) == [client.pid, str(tmp_path), ["a", "b c"], None, False]
        client.communicate("end\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_ends_with_its_client(tmp_path: Path, number: signal.Signals):
    with start(tmp_path) as client:
        seen(client)
        client.send_signal(number)
        # This is the end of the output of both.
        assert client.stdout is not None
        assert client.stdout.read() == ""
