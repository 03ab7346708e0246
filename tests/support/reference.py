"""Checks that the built site documents every public name, and shows every example as code.

Its inventory lists the names that were rendered. `make docs-python` runs it after the site is
built. A name is public if ``__all__`` of a public
module has it; so do the methods and properties of such a class whose names have no underscore.
"""

import importlib
import inspect
import sys
import zlib
from pathlib import Path

SITE = Path(__file__).parents[2] / "site"
INVENTORY = SITE / "objects.inv"

#: What a user may import.
MODULES = (
    "forebay",
    "forebay.aio",
    "forebay.archive",
    "forebay.console",
    "forebay.duckdb",
    "forebay.errors",
    "forebay.hooks",
    "forebay.metrics",
    "forebay.options",
    "forebay.polars",
    "forebay.progress",
    "forebay.serde",
    "forebay.spark",
    "forebay.testing",
)


def public_names() -> set[str]:
    """Return the full names of everything public."""
    found: set[str] = set()
    for path in MODULES:
        module = importlib.import_module(path)
        for name in module.__all__:
            if name.startswith("_"):
                continue
            found.add(f"{path}.{name}")
            value = getattr(module, name)
            if inspect.isclass(value):
                found |= {f"{path}.{name}.{each}" for each in members(value)}
    return found


def members(value: type) -> list[str]:
    """Return the methods and properties that a class defines."""
    kinds = (property, staticmethod, classmethod)
    defined = vars(value).items()
    is_typed = issubclass(value, dict)
    return [
        name
        for name, member in defined
        if not name.startswith("_") and not is_typed
        if callable(member) or isinstance(member, kinds) or inspect.isdatadescriptor(member)
    ]


def rendered(inventory: bytes) -> set[str]:
    """Return the names of an inventory, in the format of Sphinx."""
    text = zlib.decompress(inventory.split(b"zlib.\n", 1)[1]).decode()
    return {line.split(" ")[0] for line in text.splitlines()}


def missing() -> list[str]:
    """Return the public names that the site does not have."""
    return sorted(public_names() - rendered(INVENTORY.read_bytes()))


def quoted() -> list[str]:
    """Return the pages where an example is a quotation: it is not in a section of examples."""
    pages = sorted((SITE / "reference").rglob("*.html"))
    return [str(page.relative_to(SITE)) for page in pages if "<blockquote" in page.read_text()]


def main() -> int:
    """Print the names that are missing, and the pages where examples are not code."""
    found = [f"{name} is public, and no page of docs/reference/ has it" for name in missing()]
    found += [f"{page} shows an example as a quotation" for page in quoted()]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
