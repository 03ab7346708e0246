"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import harness

DOCS = Path(__file__).parents[2] / "docs"


def pages() -> list[str]:
    """Return the names of all pages, and of the README."""
    found = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    return sorted([*found, "../README.md"])


def languages(page: str) -> set[str]:
    """Return what the blocks of a page are written in."""
    opened = re.findall(r"^[ >]*(?:```|~~~)(.*)\n(?:.*\n)*?[ >]*(?:```|~~~)$", _text(page), re.M)
    return {words.strip() for words in opened}


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", _text(page), re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """Return the commands of a page, each in one line."""
    text = "".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def curled(page: str, address: str, **variables: str) -> str:
    """Send the request that a page shows to another address; return the body of the answer."""
    if shutil.which("curl") is None:
        harness.lacks("curl", "curl is not installed")
    (line,) = (line for line in commands(page) if line.startswith("curl "))
    line, places = re.subn(r"http://127\.0\.0\.1:\d+", address, line)
    assert places == 1
    done = subprocess.run(
        ["bash", "-c", f"{line} --silent --show-error --fail --noproxy '*'"],
        env=os.environ | variables, capture_output=True, text=True, timeout=harness.LONG_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), line
    return done.stdout


def _text(page: str) -> str:
    return (DOCS / page).read_text()
