"""Writes the docstrings of the built module into its stub, where editors look for them.

The stub ``python/forebay/_forebay.pyi`` holds types, which people write, and docstrings, which this
program copies from the compiled module. A property without a docstring of its own gets what the
section "Attributes" of its class says. ``stubtest`` compares the types with the module.

Run it after a change to the compiled module: ``make stub``.
"""

import ast
import inspect
import itertools
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

from forebay import _forebay

STUB = Path(__file__).parents[2] / "python" / "forebay" / "_forebay.pyi"
COLUMNS = 100

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def attributes(doc: str) -> dict[str, str]:
    """Return the texts of a docstring's section "Attributes", by name.

    A text of several names has a part for each, between semicolons, or else is that of all.
    """
    found: dict[str, str] = {}
    section = re.search(r"^Attributes\n-+\n(.*?)(?:\n\n\S[^\n]*\n-+\n|\Z)", doc, re.DOTALL | re.M)
    entries = re.findall(
        r"^(\S[^\n]*)\n((?:(?:[ ]+[^\n]*)?\n)*)", section[1] + "\n" if section else "", re.M
    )
    for line, lines in entries:
        names, text = line.split(", "), " ".join(lines.split())
        parts = [part.removeprefix("and ") for part in text.split("; ")]
        parts = [part[:1].upper() + part[1:] for part in parts]
        if len(parts) != len(names):
            parts = [text if len(names) == 1 else f"{line}: {text}"] * len(names)
        for name, part in zip(names, parts, strict=True):
            found[name] = part.rstrip(".") + "." if text else ""
    return found


def docstring(value: Any) -> str:
    """Return the docstring of a member of the module, or nothing where Python made it up."""
    made_up = isinstance(value, types.WrapperDescriptorType) or value is None
    return "" if made_up else inspect.cleandoc(getattr(value, "__doc__", None) or "")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def narrow(doc: str, width: int) -> str:
    """Return a docstring whose paragraphs have no line above ``width``."""
    lines: list[str] = []
    for indent, group in itertools.groupby(doc.split("\n"), _indent):
        paragraph = list(group)
        for is_blank, part in itertools.groupby(paragraph, lambda line: not line):
            text = list(part)
            # The title of a section, and the line under it.
            title = text[:2] if len(text) > 1 and set(text[1]) == {"-"} else []
            rest = text[len(title) :]
            is_code = is_blank or any(line.lstrip().startswith(">>>") for line in rest)
            if not is_code and max(map(len, rest), default=0) > width:
                words = " ".join(line.strip() for line in rest)
                rest = textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent)
            lines += [*title, *rest]
    return "\n".join(lines)


def literal(doc: str, indent: int) -> list[str]:
    """Return the lines of a docstring in source code."""
    prefix = 'r"""' if "\\" in doc else '"""'
    ending = ' """' if doc.endswith('"') else '"""'
    room = COLUMNS - indent - len(prefix)
    if "\n" not in doc:
        doc = narrow(doc, room - len(ending))
    lines = (prefix + narrow(doc, room)).split("\n")
    if len(lines) == 1:
        lines[0] += ending
    else:
        lines.append('"""')
    return [" " * indent + line if line else "" for line in lines]


def documented(node: Definition, doc: str, lines: list[str]) -> None:
    """Give a definition in ``lines`` a docstring in place of the one that it has."""
    first = node.body[0]
    assert first.end_lineno is not None
    has_doc = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", 0), str)
    text = literal(doc, node.col_offset + 4)
    if isinstance(node, ast.ClassDef):
        if has_doc:
            # A blank line follows it.
            del lines[first.lineno - 1 : first.end_lineno + 1]
        decorators = getattr(first, "decorator_list", [])
        start = first.lineno - len(decorators) - 1
        lines[start:start] = [*text, ""] if doc else []
        return
    # The body of a function is the docstring, or dots on the last line of its head.
    start = first.lineno - 2 if has_doc else first.lineno - 1
    head = lines[start] if has_doc else lines[start][: first.col_offset].rstrip()
    lines[start : first.end_lineno] = [head, *text] if doc else [f"{head} ..."]


def _is_overload(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list)


def stub(source: str) -> str:
    """Return the stub ``source`` with the docstrings of the module."""
    lines = source.split("\n")
    docs: list[tuple[Definition, str]] = []
    for node in ast.parse(source).body:
        if not isinstance(node, Definition):
            continue
        made = getattr(_forebay, node.name, None)
        docs.append((node, docstring(made)))
        if made is None or not isinstance(node, ast.ClassDef):
            continue
        texts = attributes(docstring(made))
        seen: set[str] = set()
        for member in ast.walk(node):
            if isinstance(member, ast.FunctionDef):
                special = member.name.startswith("__") and not member.name.startswith("__arrow")
                own = docstring(vars(made).get(member.name)) or texts.get(member.name, "")
                # The first of several overloads speaks for all.
                again = _is_overload(member) and member.name in seen
                seen.add(member.name)
                docs.append((member, "" if special or again else own))
    # From the last line to the first, so that line numbers stay true.
    for node, doc in sorted(docs, key=lambda found: -found[0].lineno):
        documented(node, doc, lines)
    return "\n".join(lines)


def current() -> str:
    """Return what the stub should be."""
    return stub(STUB.read_text())


def main() -> int:
    """Write the stub; with ``--check`` say whether it is current."""
    text = current()
    if "--check" in sys.argv[1:]:
        return int(text != STUB.read_text())
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
