"""Checks that the built site documents every public name, and shows every example as code.

Its inventory lists the names that were rendered. `make docs-python` runs it after the site is
built. A name is public if ``__all__`` of a public
module has it; so do the methods and properties of such a class whose names have no underscore.
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import stub

from forebay import _forebay

#: What has types in its signature.
Typed = ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign

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
    """Return the methods and properties that a class defines, or inherits from Forebay's."""
    kinds = (property, staticmethod, classmethod)
    if issubclass(value, dict | BaseException):
        own = [] if issubclass(value, dict) else [value]
    else:
        own = [one for one in value.__mro__ if one.__module__.partition(".")[0] == "forebay"]
    return [
        name
        for one in own
        for name, member in vars(one).items()
        # The text of the class describes its fields.
        if not name.startswith("_") and name not in getattr(value, "_fields", ())
        if callable(member) or isinstance(member, kinds) or inspect.isdatadescriptor(member)
    ]


def private() -> list[str]:
    """Return the types in public signatures that no reader can look up.

    Their names have an underscore, or they are Forebay's and no public module has them.
    """
    found = []
    public = {name.rpartition(".")[2] for name in public_names()}
    for path in MODULES:
        module = importlib.import_module(path)
        for name in module.__all__:
            # Spark calls its methods.
            if name.startswith("_") or name == "ForebayDataSource":
                continue
            tree = _tree(_home(module, getattr(module, name)))
            hidden = _own_classes(tree) - public
            for node in tree.body:
                for place, definition in typed(node, name, f"{path}.{name}"):
                    words = {*private_words(definition), *(hidden & set(words_of(definition)))}
                    found += [f"the signature of {place} has {word}" for word in words]
    return sorted(found)


def _own_classes(tree: ast.Module) -> set[str]:
    """Return the classes and aliases of Forebay that a module defines or imports."""
    found = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "forebay":
            found |= {one.name for one in node.names if one.name[0].isupper()}
    return found


def _home(module: ModuleType, value: object) -> Path:
    """Return the file that defines a public value: the stub, or a module."""
    defined = inspect.getmodule(value) or module
    if inspect.isclass(value) and getattr(_forebay, value.__name__, None) is value:
        return Path(str(_forebay.__file__)).with_name("_forebay.pyi")
    is_own = defined.__name__.partition(".")[0] == "forebay"
    return Path(str((defined if is_own else module).__file__))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def typed(node: ast.stmt, name: str, place: str) -> Iterator[tuple[str, Typed]]:
    """Yield the definition of a name, if `node` is that, and those of its public members."""
    if _name(node) != name:
        return
    if isinstance(node, Typed):
        yield place, node
    for member in node.body if isinstance(node, ast.ClassDef) else ():
        own = _name(member)
        if not own.startswith("_"):
            yield from typed(member, own, f"{place}.{own}")


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    return getattr(node, "name", "_")


def private_words(node: Typed) -> list[str]:
    """Return the names with an underscore in the types of a definition."""
    return [word for word in words_of(node) if word.startswith("_")]


def words_of(node: Typed) -> list[str]:
    """Return the names in the types of a definition."""
    if isinstance(node, ast.AnnAssign):
        # An alias is what it stands for.
        is_alias = ast.unparse(node.annotation) == "TypeAlias"
        types = [node.annotation, node.value if is_alias else None]
    else:
        types = [one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        types.append(node.returns)
    text = " ".join(ast.unparse(one) for one in types if one is not None)
    return re.findall(r"\b[A-Za-z_]\w*", text)


def undescribed(value: object) -> list[str]:
    """Return the fields of a dataclass or a named tuple that have no text."""
    if not inspect.isclass(value):
        return []
    fields: list[str] = list(getattr(value, "_fields", ()))
    if dataclasses.is_dataclass(value):
        fields = [one.name for one in dataclasses.fields(value)]
    described = set(stub.attributes(inspect.getdoc(value) or ""))
    for node in _tree(_home(inspect.getmodule(value) or sys, value)).body if fields else ():
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            for member, text in itertools.pairwise(node.body):
                if isinstance(text, ast.Expr) and isinstance(member, ast.AnnAssign):
                    described.add(_name(member))
    return [one for one in fields if one not in described and not one.startswith("_")]


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
