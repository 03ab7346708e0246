"""Refuses to publish what does not fit together: tag, version, changelog, repository.

``python tests/support/release.py TAG OWNER/REPOSITORY``, before anything is built.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def problems(root: Path, tag: str, repository: str) -> list[str]:
    """Return what contradicts a release of this tag from this repository."""
    found = []
    version = tomllib.loads((root / "Cargo.toml").read_text())["package"]["version"]
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, but Cargo.toml says {version}, so it must be v{version}")
    if not re.search(rf"^## \[{re.escape(version)}\]", (root / "CHANGELOG.md").read_text(), re.M):
        found.append(f"CHANGELOG.md has no section [{version}]")
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    address = f"https://github.com/{repository}"
    if urls["Repository"] != address:
        found.append(f"the package says {urls['Repository']}, and it is published from {address}")
    return found


def main() -> None:
    """Check the tag and the repository that the command line names."""
    found = problems(ROOT, *sys.argv[1:3])
    sys.exit("\n".join(found) or None)


if __name__ == "__main__":
    main()
