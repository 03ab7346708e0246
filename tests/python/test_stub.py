"""The stub of the compiled module has the docstrings of the module that is built."""

import stub

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


def test_a_property_gets_what_its_class_says_of_it():
    texts = stub.attributes(_forebay.SendResult.__doc__ or "")
    assert texts["durable"] == "Whether the message was durable when the call returned."
    assert texts["queue"].startswith("topic, queue, offset: The place in the queue.")
    texts = stub.attributes(_forebay.Message.__doc__ or "")
    assert texts["keys"] == "All keys as a tuple."
    assert texts["key"] == "The first key, or None."
