"""Starts the processes under test and listens to them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import LONG_S, SLOW

HERE = Path(__file__).resolve().parent

Task = dict[str, Any]


@dataclass
class Outcome:
    """How a child ended, and what it printed."""

    status: int
    lines: list[str] = field(default_factory=list)
    hung: bool = False

    def of(self, word: str) -> list[str]:
        return [line for line in self.lines if line.startswith(word + " ")]

    @property
    def complaints(self) -> list[str]:
        """Complaints of the child, and output that it should not have printed."""
        known = ("ack ", "error ", "calls ", "records ", "ready", "behind ", "room ", *SLOW)
        wrong = [line for line in self.lines if not line.startswith(known)]
        return ["it hangs", *wrong] if self.hung else wrong


@functools.cache
def shim() -> Path | None:
    """Compile the fault library that wraps the C library; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    made = Path(tempfile.mkdtemp(prefix="forebay-shim-")) / "shim.so"
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    command = [compiler, "-O1", "-shared", "-fPIC", str(HERE / "shim.c"), "-o", str(made), "-ldl"]
    subprocess.run(command, check=True)
    return made


class Nursery:
    """One process that forks children, one at a time."""

    def __init__(self, *, failing_calls: bool = False) -> None:
        self.failing_calls = failing_calls
        self._start()

    def _start(self) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        made = shim() if self.failing_calls else None
        if made is not None:
            environment["LD_PRELOAD"] = str(made)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "child.py")], stdin=other.fileno(), env=environment
            )

    def run(
        self,
        task: Task,
        *,
        heard: Callable[[str, int], None] | None = None,
        kill_after_s: float | None = None,
        from_ready: bool = False,
        hangs_s: float = LONG_S,
    ) -> Outcome:
        """Let a child do a task. ``heard`` gets each line and the child's process id.

        ``kill_after_s`` kills it that long after its start, or with ``from_ready``, after it has
        opened its store.
        """
        reader, writer = os.pipe()
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [writer]))
            self._channel.sendmsg([json.dumps(task).encode()], [rights])
        finally:
            os.close(writer)
        child = int(self._channel.recv(64))
        outcome = Outcome(0)
        ended, begun = threading.Event(), threading.Event()

        def watch() -> None:
            if kill_after_s is not None:
                if from_ready:
                    begun.wait(hangs_s)
                if not ended.wait(kill_after_s):
                    os.kill(child, signal.SIGKILL)
            if not ended.wait(hangs_s):
                outcome.hung = True
                os.kill(child, signal.SIGKILL)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with os.fdopen(reader, "rb") as pipe:
            for line in pipe:
                # An incomplete last line is not an acknowledgement.
                if line.endswith(b"\n"):
                    text = line[:-1].decode()
                    outcome.lines.append(text)
                    if text == "ready":
                        begun.set()
                    if heard is not None:
                        heard(text, child)
        ended.set()
        begun.set()
        watcher.join()
        self._channel.send(b"reap")
        outcome.status = int(self._channel.recv(64))
        return outcome

    def close(self) -> None:
        self._channel.close()
        self._process.wait(LONG_S)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
