"""The examples run unchanged, with warnings as errors."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness import lacks

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_unchanged(example: Path) -> None:
    needed = example.stem.rpartition("_")[2]
    if needed == "gunicorn" and find_spec(needed) is None:
        lacks(needed, "gunicorn is not installed")
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5
