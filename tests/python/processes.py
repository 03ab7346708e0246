"""Processes of tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


def run_with_children(
    code: str, *arguments: str, cwd: Path | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process, and end the children that it has left."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)
