"""Prints the oldest versions of optional packages that pyproject.toml allows, and what tests need.

`make test-oldest` installs what this prints. A test dependency has no version here: the newest one
is taken that goes with the oldest packages.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def name(requirement: str) -> str:
    """Return the package in a requirement, with its extras."""
    return re.split(r"[<>=;~ ]", requirement, maxsplit=1)[0].lower()


def oldest(project: dict[str, Any]) -> list[str]:
    """Return requirements: the lower bound of each optional package, and test dependencies."""
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    groups: dict[str, list[object]] = project["dependency-groups"]
    wanted = {each for extra in extras if extra != "all" for each in extras[extra]}
    bounds = sorted({re.sub(r">=([\d.]+).*", r"==\1", each) for each in wanted})
    optional = {name(each) for each in bounds}
    tests = [each for each in groups["test-without-spark"] if isinstance(each, str)]
    return [*bounds, *(name(each) for each in tests if name(each) not in optional)]


def main() -> None:
    """Print the requirements, one a line."""
    print(*oldest(tomllib.loads(PROJECT.read_text())), sep="\n")


if __name__ == "__main__":
    main()
