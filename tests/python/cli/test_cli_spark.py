"""The verb spark: all jobs as commands, in one child process with its own JVM."""

import json
import re
import subprocess
import sys

import pytest

import forebay

pytest.importorskip("pyspark")

#: Runs the command lines in its argument and prints the status and output of each. A line that ends
#: in "on a terminal" gets a terminal as standard error.
RUNNER = """
import contextlib, io, json, sys
import forebay.progress
import forebay.spark.jobs.work
from forebay.cli import main
# Jobs over six messages are short.
forebay.progress._INTERVAL = 0
forebay.spark.jobs.work._REPORT_INTERVAL = 0.001
class Terminal(io.StringIO):
    def isatty(self):
        return True
for line in json.loads(sys.argv[1]):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    if line[-1] == "on a terminal":
        line, err = line[:-1], Terminal()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(line)
    out.flush()
    text = out.buffer.getvalue().decode()
    print("RESULT " + json.dumps([status, text, err.getvalue()]), flush=True)
"""


def run_all(lines):
    lines = [[str(word) for word in line] for line in lines]
    command = [sys.executable, "-c", RUNNER, json.dumps(lines)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(found) == len(lines)
    return [json.loads(line) for line in found]


def test_every_job_is_a_command(store, tmp_path):
    damaged = tmp_path / "damaged"
    with forebay.open(damaged, commitlog_file_size=1 << 20) as opened:
        place = opened.send("orders", b"to be damaged", queue=0)
        opened.send("orders", b"whole", queue=0)
    with (damaged / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(place.position + 90)
        log.write(b"\xff")
    spark = ["spark"]
    local = ["--master", "local[2]", "--conf", "spark.driver.memory=512m"]
    results = run_all(
        [
            [*spark, "audit", damaged, *local, "on a terminal"],
            [*spark, "rebuild", store, "--json", *local],
            [*spark, "export", store, tmp_path / "lake", *local],
            [*spark, "report", store, "--keys", "2", "--html", tmp_path / "page.html", *local],
            [*spark, "compact", store, tmp_path / "newest", "--json", *local],
            [*spark, "audit", store, "--conf", "nonsense"],
            [*spark, "compact", store, tmp_path / "newest", *local],
        ]
    )
    audit, rebuild, export, report, compact = results[:5]
    assert [status for status, _, _ in results] == [1, 0, 0, 0, 0, 2, 1]
    assert [error for _, _, error in results[1:5]] == [""] * 4
    told = audit[2]
    assert re.search("auditing.* [0-9]+%.* of [0-9,]+ tasks", told)
    lines = audit[1].splitlines()
    assert str(place.position) in lines[0]
    assert "lost" in lines[0]
    assert "1 record, 1 queue entry" in lines[1]
    assert re.fullmatch(r"\d+ tasks in \d+\.\d s, .+/s", lines[-1])
    facts = json.loads(rebuild[1])
    assert (facts["queue_entries"], facts["index_entries"], facts["replaced"]) == (6, 6, True)
    assert export[1].startswith("run 1: 6 messages in ")
    head = "topic queues messages bytes first last rate peak rate"
    assert report[1].split("\n")[0].split() == head.split()
    assert report[1].endswith(f"wrote {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    facts = json.loads(compact[1])
    # Keys k0 to k3, and "a", the first key of the message with two; one message has no key.
    assert (facts["messages"], facts["kept"], facts["without_key"]) == (6, 6, 1)
    assert "--conf must have the form NAME=VALUE, got nonsense" in results[5][2]
    assert "newest" in results[6][2]
    with forebay.open(store, mode="r") as opened:
        assert opened.verify().ok


def test_help_starts_no_spark(run):
    status, out, _err = run("spark", "audit", "--help")
    assert status == 0
    assert b"--master" in out
    assert run("spark")[0] == 2
