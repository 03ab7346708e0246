"""An extension of Griffe, which reads the reference from the stub.

A function that a stub has as overloads alone is documented with the docstring of the first.
Parameters that a docstring describes together each have the type and the default of the signature;
Griffe gives all of them those of the first.
"""

import copy
from typing import Any

import griffe


class Overloaded(griffe.Extension):
    """Makes a member of the overloads of each method that a class of a stub has."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the members that are missing."""
        for name, overloads in cls.overloads.items():
            if overloads and name not in cls.members:
                member = copy.copy(overloads[0])
                member.overloads = overloads[1:]
                cls.set_member(name, member)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Give each parameter of the docstring its own type and default."""
        for section in func.docstring.parsed if func.docstring else ():
            if section.kind is griffe.DocstringSectionKind.parameters:
                for described in section.value:
                    if described.name in func.parameters:
                        parameter = func.parameters[described.name]
                        described.annotation = parameter.annotation
                        described.value = parameter.default
