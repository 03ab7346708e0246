"""Starts Spark's Python workers as forks of one process that has imported PySpark.

A worker spends 0.4 to 0.7 core seconds on its imports, and a session starts a dozen. A server per
process of the tests imports the same modules once:

    JVM --executes--> client --arguments, environment, standard files--> server --forks--> worker

To the JVM the client is the worker: it passes SIGTERM on, and ends when the worker does. Without
its server it executes the worker itself.

``python spark_workers.py PYTHON -m MODULE ARGUMENTS...`` is a client, which finds its server by the
environment; ``python spark_workers.py serve LISTENER ALIVE`` is a server.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

#: The variable that holds the address of the server.
ADDRESS = "FOREBAY_SPARK_WORKERS"
#: What workers import. The oldest PySpark that is supported has not all of it.
IMPORTS = (
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "forebay.spark",
)
#: It leaves the process group of its driver, and ends at the end of its input. A worker without a
#: daemon stays in the group, and is killed with it.
DAEMON = "pyspark.daemon"
SERVE = "serve"
#: The server of this process, and the pipe that ends it.
_running: list[tuple[subprocess.Popen[bytes], int]] = []


def start() -> str:
    """Start a server that ends with this process. Return its address."""
    import subprocess
    import uuid

    address = f"forebay-spark-workers-{uuid.uuid4().hex}"
    alive, ours = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{address}")
        listener.listen(64)
        files = (listener.fileno(), alive)
        server = subprocess.Popen(
            [sys.executable, __file__, SERVE, *map(str, files)],
            env=os.environ | {"PYTHONHASHSEED": "0"},  # What Spark gives to its workers.
            pass_fds=files,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    os.close(alive)
    _running.append((server, ours))
    return address


def serve(listening: int, alive: int) -> None:
    """Fork a worker for each client, until the other end of `alive` is closed."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for workers.
    listener = socket.socket(fileno=listening)
    prepared = False
    while alive not in select.select([listener, alive], [], [])[0]:
        client, _ = listener.accept()
        if not prepared:
            prepare()
            prepared = True
        if os.fork() == 0:
            os.close(alive)
            listener.close()
            work(client)
            return
        client.close()


def prepare() -> None:
    """Import what workers import."""
    import contextlib
    import gc
    import importlib

    for name in IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()


def work(client: socket.socket) -> None:
    """Be the worker that a client asks for."""
    import fcntl
    import runpy
    import time

    request, files, *_ = socket.recv_fds(client, 1 << 20, 3)
    (_, module, *arguments), environment, folder = marshal.loads(request)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = [module, *arguments]
    sys.path[0] = folder
    if module != DAEMON:
        fcntl.fcntl(client, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(client, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(client, fcntl.F_SETFL, os.O_ASYNC)
    client.send(str(os.getpid()).encode())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def stand_for_worker(command: list[str]) -> None:
    """Have the server fork a worker, and end when it ends."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("\0" + os.environ[ADDRESS])
    except (KeyError, ConnectionRefusedError):
        os.execv(command[0], command)
    request = marshal.dumps((command[1:], dict(os.environ), os.getcwd()))
    socket.send_fds(connection, [request], [0, 1, 2])
    worker = int(connection.recv(20))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGTERM))
    while connection.recv(1):
        pass


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(*map(int, sys.argv[2:]))
    else:
        stand_for_worker(sys.argv[1:])
