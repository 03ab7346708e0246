"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import re
from pathlib import Path

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


def _text(page: str) -> str:
    return (DOCS / page).read_text()
