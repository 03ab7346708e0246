"""spark: the jobs as commands, all in one process beside this one, which has its own Java."""

import json
import subprocess
import sys

import pytest

import forebay

pytest.importorskip("pyspark")

#: Runs command lines that it reads from its arguments, and prints status and output of each.
RUNNER = """
import contextlib, io, json, sys
from forebay.cli import main
for line in json.loads(sys.argv[1]):
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
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
            [*spark, "audit", store, *local],
            [*spark, "audit", damaged, "--json", *local],
            [*spark, "rebuild", store, "--target", tmp_path / "built", "--json", *local],
            [*spark, "rebuild", store, *local],
            [*spark, "export", store, tmp_path / "lake", *local],
            [*spark, "export", store, tmp_path / "lake", *local],
            [*spark, "report", store, "--keys", "2", *local],
            [*spark, "compact", store, tmp_path / "newest", "--json", *local],
            [*spark, "audit", tmp_path / "nothing", *local],
            [*spark, "audit", store, "--conf", "nonsense"],
            [*spark, "export", store, tmp_path / "lake", "--partition-by", "colour", *local],
        ]
    )
    status, out, err = results[0]
    assert (status, err) == (0, "")
    assert out.startswith("6 records, 6 queue entries and 6 index entries are whole\n")
    status, out, err = results[1]
    facts = json.loads(out)
    assert (status, err, facts["ok"], facts["records"]) == (1, "", False, 1)
    assert facts["damage"][0]["position"] == place.position
    assert facts["damage"][0]["lost"] == [["orders", 0, 0]]
    facts = json.loads(results[2][1])
    assert (results[2][0], facts["queue_entries"], facts["replaced"]) == (0, 6, False)
    assert results[3][0] == 0
    assert results[3][1].startswith("6 entries of 3 queues and 6 of 1 index files, in ")
    assert results[4][1].startswith("run 1: 6 messages in ")
    assert results[5][1] == "nothing was sent since the last export\n"
    assert results[6][0] == 0
    assert results[6][1].split("\n")[0].split() == [
        *("topic", "queues", "messages", "bytes", "first", "last", "rate", "peak", "rate")
    ]
    facts = json.loads(results[7][1])
    # Keys k0, k1, k2 and k3, then "a" for the one with two; one message has no key.
    assert (facts["messages"], facts["kept"], facts["without_key"]) == (6, 6, 1)
    assert [status for status, _, _ in results[8:]] == [1, 2, 1]
    assert "nothing" in results[8][2]
    assert "--conf nonsense is not NAME=VALUE" in results[9][2]
    assert "partition_by" in results[10][2]
    with forebay.open(store, mode="r") as opened:
        assert opened.verify().ok


def test_help_starts_no_spark(run):
    status, out, _err = run("spark", "audit", "--help")
    assert status == 0
    assert b"--master" in out
    assert run("spark")[0] == 2
