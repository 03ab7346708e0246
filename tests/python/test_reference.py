"""The reference has every public name, and the check of that notices what is missing."""

import ast
import importlib
import re
import zlib
from pathlib import Path

import pytest
import reference

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def test_every_public_name_is_on_a_page():
    """What `make docs-python` checks in the site, as far as the sources of the pages say it."""
    text = "".join(page.read_text() for page in PAGES.glob("*.md"))
    drawn = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    for module in reference.MODULES:
        names = {name for name in reference.public_names() if name.rpartition(".")[0] == module}
        errors = {name for name in names if name.endswith("Error") and "forebay.errors" in drawn}
        assert module in drawn or names - errors <= drawn | {"forebay.ForebayError"}, module


def test_a_name_without_a_page_is_noticed(tmp_path, monkeypatch):
    listed = b"forebay.open py:function 1 reference/#$ -\n"
    inventory = tmp_path / "objects.inv"
    inventory.write_bytes(b"# compressed using zlib.\n" + zlib.compress(listed))
    monkeypatch.setattr(reference, "INVENTORY", inventory)
    missing = reference.missing()
    assert "forebay.open" not in missing
    assert {"forebay.Store", "forebay.Store.send", "forebay.Message.body"} <= set(missing)


def test_an_example_that_is_no_code_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "reference" / "types").mkdir(parents=True)
    page = tmp_path / "reference" / "types" / "index.html"
    monkeypatch.setattr(reference, "SITE", tmp_path)
    page.write_text("<pre>&gt;&gt;&gt; 1</pre>")
    assert reference.quoted() == []
    page.write_text("<blockquote>1</blockquote>")
    assert reference.quoted() == ["reference/types/index.html"]


def test_parameters_that_are_described_together_have_their_own_types():
    griffe = pytest.importorskip("griffe")
    overloaded = importlib.import_module("overloaded")
    code = '''
def opened(mode: str = "a", adopt: bool = False, **options: int) -> None:
    """Open.

    Parameters
    ----------
    mode, adopt, **options
        As for `forebay.open`.
    """
'''
    extensions = griffe.load_extensions(overloaded.Overloaded)
    with griffe.temporary_visited_package(
        "reference_of", {"__init__.py": code}, extensions=extensions, docstring_parser="numpy"
    ) as package:
        (section,) = package["opened"].docstring.parsed[1:]
        found = [(it.name, str(it.annotation), it.value) for it in section.value]
    assert found[:2] == [("mode", "str", "'a'"), ("adopt", "bool", "False")]
    assert found[2][:2] == ("**options", "int")


def test_no_signature_speaks_of_a_private_type():
    """A reader can look up no such name, and cannot import it for an annotation."""
    assert reference.private() == []


def test_a_private_type_in_a_signature_is_noticed():
    code = """
Alias: TypeAlias = _One | int
def opened(path: _Two, *_raised: object) -> forebay._Three: ...
class Store:
    kind: _Four
    def send(self, key: list[_Five]) -> None: ...
    def _private(self, key: _Six) -> None: ...
"""
    found = [
        definition
        for node in ast.parse(code).body
        for name in ("Alias", "opened", "Store")
        for definition in reference.typed(node, name, name)
    ]
    assert [path for path, _ in found] == ["Alias", "opened", "Store.kind", "Store.send"]
    words = [reference.private_words(definition) for _, definition in found]
    assert words == [["_One"], ["_Two", "_Three"], ["_Four"], ["_Five"]]


def test_every_field_of_a_public_class_is_described():
    """The site shows no field without a text, and neither does an editor."""
    silent = [
        f"{path}.{name}.{field}"
        for path in reference.MODULES
        for name in importlib.import_module(path).__all__
        for field in reference.undescribed(getattr(importlib.import_module(path), name))
    ]
    assert silent == []
