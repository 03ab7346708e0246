"""The gate itself: what it starts ends, failures are reported, and nothing is skipped silently."""

import contextlib
import io
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import harness
import pytest

ROOT = Path(__file__).parents[2]


def ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_a_background_run_responds_to_ctrl_c():
    """A shell makes background jobs ignore SIGINT, and the tests send it."""
    name = "tests/python/test_read.py::test_ctrl_c_interrupts_a_tail_that_waits"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    done = subprocess.run(
        command,
        cwd=ROOT,
        preexec_fn=ignore_ctrl_c,
        capture_output=True,
        text=True,
        timeout=harness.LONG_S,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("required", "outcome"),
    [(frozenset(), pytest.skip.Exception), (frozenset(["loop"]), pytest.fail.Exception)],
)
def test_tests_of_declared_requirements_are_not_skipped(monkeypatch, required, outcome):
    monkeypatch.setattr(harness, "REQUIRED", required)
    with pytest.raises(outcome, match="there are no loop devices"):
        harness.lacks("loop", "there are no loop devices")


def test_the_gate_requires_all_that_a_test_may_need():
    """Curl and gunicorn were not declared, so their tests were skipped where they were missing."""
    gate = (ROOT / ".ci" / "run").read_text()
    declared = re.findall(r"CI_REQUIRES\+?=([\w,]+)", gate)
    assert set(",".join(declared).strip(",").split(",")) - {""} == harness.NAMES


def run(folder: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | more
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=harness.LONG_S
    )


def test_a_step_is_silent_unless_it_fails(tmp_path):
    step = str(ROOT / ".ci" / "step")
    done = run(tmp_path, step, "good", "sh", "-c", "echo noise; echo '12 passed in 3 s'")
    assert done.returncode == 0
    assert "noise" not in done.stdout
    assert "12 passed in 3 s" in done.stdout
    failed = run(tmp_path, step, "bad step", "sh", "-c", "echo the reason >&2; exit 3")
    assert failed.returncode == 3
    assert "the reason" in failed.stdout
    assert "FAILED" in failed.stdout
    late = run(tmp_path, step, "late", "sleep", "60", STEP_LIMIT="0.1")
    assert late.returncode == 124
    assert "late was ended after 0.1 s" in late.stdout
    steps = (tmp_path / "target" / "steps.txt").read_text().splitlines()
    assert [line.split()[0] for line in steps] == ["ok", "FAILED", "FAILED"]


def test_the_first_failure_ends_what_runs_beside_it(tmp_path):
    (tmp_path / "Makefile").write_text(
        "long:\n\t@echo $$$$ >pid; exec sleep 600\n"
        "bad:\n\t@while test ! -s pid; do :; done; exit 3\n"
        "good:\n\t@true\n"
    )
    beside = str(ROOT / ".ci" / "beside")
    assert run(tmp_path, beside, "good", "good").returncode == 0
    assert run(tmp_path, beside, "long", "bad").returncode != 0
    # The process is ending; the timeout of the test limits how long it may take.
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        pass


def test_the_summary_of_the_benches_names_every_target(tmp_path):
    copy = tmp_path / "benches" / "summary.py"
    copy.parent.mkdir()
    shutil.copy(ROOT / "benches" / "summary.py", copy)
    summary = runpy.run_path(str(copy))
    saved = tmp_path / "target" / "bench"
    saved.mkdir(parents=True)

    def lines() -> list[str]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            summary["main"]()
        return printed.getvalue().splitlines()[1:]

    assert len(lines()) == len(summary["THRESHOLDS"])
    assert not any("met" in line for line in lines())
    for bench, name, _, asked in summary["THRESHOLDS"]:
        base = [asked[0]] if isinstance(asked, tuple) else []
        with (saved / f"{bench}.tsv").open("a") as kept:
            kept.writelines(f"{figure}\tunits\t1.0\t1.0\t1.0\t1\n" for figure in [name, *base])
    assert len(lines()) == len(summary["THRESHOLDS"])
    assert all(re.search(r"(met|NOT MET)\b", line) for line in lines())
