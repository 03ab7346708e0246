"""The example of a web service under a real uvicorn: what it answered survives its end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import forebay

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def service(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run uvicorn, and yield its process and address."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--port", "0"]
    command += ["--factory", "fastapi_events:create_app"]
    environment = os.environ | {"EVENTS": str(folder / "events")}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as running:
        try:
            assert running.stderr is not None
            for line in running.stderr:
                found = re.search(r"running on (http://[\d.:]+)", line)
                if found:
                    break
            else:
                raise AssertionError("uvicorn does not serve")
            yield running, found[1]
        finally:
            running.kill()


def test_events_that_were_answered_are_there_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    async def post(address: str, numbers: range) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            posts = (client.post(f"/events/user{n % 5}", content=f"click {n}") for n in numbers)
            answers = await asyncio.gather(*posts)
            assert {answer.status_code for answer in answers} == {201}

    with service(tmp_path) as (running, address):
        asyncio.run(post(address, range(100)))
        running.send_signal(signal.SIGKILL)
        running.wait()
    with service(tmp_path) as (running, address):
        asyncio.run(post(address, range(100, 200)))
        with httpx.Client(base_url=address, timeout=60) as client:
            newest = client.get("/events/user3").json()
            assert len(newest) == 10
            assert {int(event.removeprefix("click ")) % 5 for event in newest} == {3}
        running.terminate()
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()
        assert running.wait() in (0, -signal.SIGTERM)
    with forebay.open(tmp_path / "events", mode="r") as store:
        assert store.recovery.clean
        events = {event.body for event in store.tail("events", "earliest", follow=False)}
        assert events == {b"click %d" % number for number in range(200)}
        assert "counts" in store.groups
