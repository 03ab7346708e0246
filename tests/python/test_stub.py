"""The stub of the compiled module has the docstrings of the module that is built."""

import inspect
import re

import stub

import forebay
from forebay import _forebay


def test_the_stub_has_the_docstrings_of_the_module():
    assert stub.STUB.read_text() == stub.current(), "run `make stub`"


def test_a_docstring_in_the_stub_is_replaced_and_others_are_added():
    source = "\n".join(
        (
            "@final",
            "class Ticket:",
            '    """Stale."""',
            "",
            "    def done(self) -> bool: ...",
            "    def result(",
            "        self, timeout: float | None = None",
            "    ) -> SendResult:",
            '        """Stale."""',
            "",
            "class _Private(Protocol):",
            "    def anything(self) -> int: ...",
            "",
        )
    )
    written = stub.stub(source)
    assert "Stale" not in written
    assert (_forebay.Ticket.done.__doc__ or "unknown") in written
    assert "Wait until the message is durable" in written
    assert "    def anything(self) -> int: ...\n" in written
    assert stub.stub(written) == written


def test_help_knows_every_public_property():
    """``help(Store.durable_position)`` shows the property's own text, and not its class's."""
    silent = [
        f"{name}.{member}"
        for name in forebay.__all__
        if isinstance(kind := getattr(forebay, name), type)
        for member, value in vars(kind).items()
        if not member.startswith("_") and inspect.isdatadescriptor(value) and not value.__doc__
    ]
    assert silent == []


def test_an_attribute_of_one_name_is_the_text_of_its_property():
    other = []
    for name in forebay.__all__:
        kind = getattr(forebay, name)
        if getattr(_forebay, name, None) is not kind or not isinstance(kind, type):
            continue
        for member, text in stub.attributes(kind.__doc__ or "").items():
            if not hasattr(kind, member):
                # A sentence about several.
                continue
            own = " ".join((getattr(kind, member).__doc__ or "").split())
            # A text of several names is of all of them; each property has a part of it.
            if not re.match(r"\w+, ", text) and own != text:
                other.append((name, member, own, text))
    assert other == []


def test_a_property_gets_what_its_class_says_of_it():
    texts = stub.attributes(_forebay.SendResult.__doc__ or "")
    assert texts["durable"] == "Whether the message was durable when the call returned."
    assert texts["queue"].startswith("topic, queue, offset: The place in the queue.")
    texts = stub.attributes(_forebay.Message.__doc__ or "")
    assert texts["keys"] == "All keys as a tuple."
    assert texts["key"] == "The first key, or None."
