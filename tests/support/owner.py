"""A process that has a store open for writing, and does nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Opens the store and reports it, then runs commands from its standard input until the end.
OWNER = """
import sys
import forebay
with forebay.open(sys.argv[1], **eval(sys.argv[2])) as store:
    print("open", flush=True)
    sys.stdin.read()
"""


class Owner:
    """A process that has the store open for writing."""

    def __init__(self, path: Path, **options: Any) -> None:
        command = [sys.executable, "-c", OWNER, str(path), repr(options)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "open\n"
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.communicate()
