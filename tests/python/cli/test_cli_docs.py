"""The shell's blocks on the pages: each command runs as written, or a rule says why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness
import pytest
from cli_support import Run
from console_support import serving
from golden_stores import KAFKA, unpack
from pages import blocks, commands, curled, languages, pages

import forebay
from forebay import cli
from forebay.console import Console

ROOT = Path(__file__).parents[3]

#: What blocks are written in, and what runs them.
LANGUAGES = {
    "python": "test_docs.py and test_spark_docs.py",
    "sh": "this file",
    "sql": "test_spark_docs.py",
    "json": "this file",
    "text": "test_docs.py compares what is below a block of Python; the others are drawings",
    "py": "this file; they use another package alone",
}

#: Beginnings of lines that do not run here.
NOT_HERE = {
    "pip install": "fetches packages; test_package.py installs the wheel",
    "make ": "is the gate, and the demo that test_demo.py runs",
    "cargo ": "is a test of Rust",
    "FOREBAY_": "is a test of Rust, or a benchmark",
    "gunicorn ": "test_docs.py starts it",
    "curl ": "needs a server: below, test_docs.py and test_spark_docs.py have it",
    "export PYSPARK_PYTHON": "names a cluster's Python",
    "forebay spark ": "test_cli_spark.py runs the jobs",
    "forebay console ": "test_console.py serves it",
    "forebay completion ": "test_cli_completion.py loads the scripts",
    "forebay archive events s3:": "test_archive_remote.py has the server",
}
#: These do not end by themselves.
ENDLESS = re.compile(r"forebay tail .* -f\b")


def reason(line: str) -> str | None:
    """Return why a command does not run here."""
    if ENDLESS.match(line):
        return "it does not end"
    return next((why for begin, why in NOT_HERE.items() if line.startswith(begin)), None)


def make_events(path: Path) -> None:
    """Make the store that the pages speak of: a group with dead letters, a key, some queues."""
    with forebay.open(path, commitlog_file_size=1 << 20) as store:
        for queue in range(4):
            orders = store.producer("orders", queue=queue)
            orders.send_batch([b"3 apples"] * 1_020, keys=["42"] * 1_020, tags="paid")
        with store.consumer("orders", group="billing") as consumer:
            consumer.reject(consumer.poll(1)[0], "no such fruit")
    with forebay.open(path) as store, store.consumer("clicks", group="billing"):
        store.send("clicks", b"look")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with what the commands of the pages read."""
    unpack("broker", tmp_path)
    unpack("none-0", tmp_path / "kafka-logs", KAFKA).rename(tmp_path / "kafka-logs" / "orders-0")
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "program.py").write_text("print(sorted(store.topics))\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("python", ""), ("forebay", "-m forebay ")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (programs / name).chmod(0o755)
    # The real one does not end, and a machine may have no journal.
    (programs / "journalctl").write_text('#!/bin/sh\nprintf "%s\\n" started stopped\n')
    (programs / "journalctl").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "page", [page for page in pages() if any(not reason(line) for line in commands(page))]
)
def test_the_commands_of_a_page_run_one_after_another(page: str, folder: Path) -> None:
    if page != "convert.md":
        make_events(folder / "events")
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    for line in commands(page):
        if reason(line):
            continue
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=folder, env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=harness.LONG_S,
        )  # fmt: skip
        # The doctor warns of what this machine may have.
        assert done.returncode in ((0, 1) if "doctor" in line else (0,)), (line, done.stderr)
        assert done.stdout or "shell" in line, line


def test_the_request_to_the_console_is_answered(folder: Path) -> None:
    make_events(folder / "events")
    token = "0123456789abcdef"
    with forebay.open(folder / "events", mode="r") as store:
        with serving(Console(store, token=token)) as address:
            answer = json.loads(curled("console.md", address, TOKEN=token))
        assert answer["messages"] > 4 * 1_020


def test_every_reason_is_one_of_a_command_on_a_page() -> None:
    shown = [line for page in pages() for line in commands(page)]
    unused = [begin for begin in NOT_HERE if not any(line.startswith(begin) for line in shown)]
    assert unused == []


def test_no_block_is_in_a_language_that_nothing_runs() -> None:
    found = {language for page in pages() for language in languages(page)}
    assert found == set(LANGUAGES)


def test_what_a_command_that_does_not_run_here_names_exists() -> None:
    """A file of the project, or a test of Rust, by its module or the start of its name."""
    sources = [it.read_text() for it in (ROOT / "src").rglob("*.rs")]
    checked = set()
    for line in (line for page in pages() for line in commands(page) if reason(line)):
        words = [word for word in shlex.split(line, comments=True) if "=" not in word]
        for word in words:
            if re.fullmatch(r"(tests|benches)/[\w/.]+", word):
                assert (ROOT / word).exists(), line
                checked.add(word)
        if words[:2] == ["cargo", "test"]:
            (name,) = (word for word in words[2:] if re.fullmatch(r"[\w:]+", word))
            found = name.endswith("::") and (ROOT / "src" / name.strip(":")).is_dir()
            assert found or any(f"fn {name}" in text for text in sources), line
            checked.add(name)
    assert {"benches/spark/run.py", "sim::", "every_sync"} <= checked


@pytest.mark.parametrize("fails", [False, True])
def test_the_program_of_another_package_runs(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [page for page in pages() if blocks(page, "py")] == ["from-queues.md"]
    (code,) = blocks("from-queues.md", "py")
    worked = []

    def work(item: bytes) -> None:
        worked.append(item)
        if fails:
            raise ValueError

    names: dict[str, Any] = {"work": work}
    exec(compile(code, "from-queues.md", "exec"), names)
    assert worked == [b"resize cat.jpg"]
    assert names["queue"].qsize() == fails
    names["queue"].close()


def test_a_block_of_json_is_json_and_has_the_members_that_the_command_prints(
    run: Run, store: Path
) -> None:
    for page in pages():
        for text in blocks(page, "json"):
            json.loads(text)
    (shown,) = blocks("cli.md", "json")
    printed = run("cat", store, "orders", "--limit", 1)[1]
    assert list(json.loads(shown)) == list(json.loads(printed))


def test_the_parser_takes_every_command_on_a_page() -> None:
    for page in pages():
        for line in commands(page):
            command = re.split(r" [|<>] | #", line)[0].strip()
            if not command.startswith("forebay "):
                continue
            try:
                cli.make_parser().parse_args(cli.join_times(shlex.split(command)[1:]))
            except SystemExit:
                pytest.fail(f"{page}: {command}")
