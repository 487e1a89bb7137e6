"""The faces of an op: functions and classes that only hand their arguments to it, declared as data where the op is.

    @op("clip", inputs="X", attrs={...}, faces=[Face("clip", "x min! max! name"), Functional("clamp", "x min! max! name")])

The words of `takes` are the arguments in order. A word is an attribute of the op where there is one of that name, else the next input:

    x               the next input slot, or the attribute x
    perm:axis       the slot or attribute axis, under the name perm
    k!              an attribute without a default, or an optional slot that has to be given
    value=2.0       an attribute with a default of its own, a Python literal
    act, name       an activation of the result; the prefix of the outputs' names
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from pe_cli.core.value_class import Value

_WORD = re.compile(r"(\w+)(?::(\w+))?(!)?(?:=(\S+))?")


class Word(Value):
    """One argument of a face.

    Args:
        name: of the argument.
        target: slot or attribute that gets it; empty for the one of its own name, or the next slot.
        required: it has no default.
        given: it has a default of its own.
        default: that.
    """

    name: str
    target: str = ""
    required: bool = False
    given: bool = False
    default: Any = None

    def replaced(self, target: str) -> Word:
        """Return the word with a target."""
        return Word(self.name, target, self.required, self.given, self.default)


def words(takes: str) -> list[Word]:
    """Return the arguments that a text declares.

    Raises:
        ValueError: a word that is none; it is ours.
    """
    found = []
    for text in takes.split():
        match = _WORD.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no argument of a face")
        name, target, required, default = match.groups()
        # A literal: faces are data, and nothing in them is run.
        value = None if default is None else ast.literal_eval(default)
        found.append(Word(name, target or "", bool(required), default is not None, value))
    return found


class Face(Value):
    """A layer that is one op: what a model file names by `type`, and fluid's scripts call.

    Args:
        name: of the layer; default: the op's.
        takes: its arguments, see the module; default: the first input, the attributes by their own names, and a name.
        says: first paragraph of its doc; default: the op's.
        docs: argument -> what its doc says; default: what the op's says.
        kinds: argument -> annotation, where the attribute's default does not tell it.
        fixed: attributes that no argument gives.
        returns: output slots that it returns; default: all, in the op's order.
        act: layers take the op's name as `act`.
        layer: it is a layer; False where a function is that, as it takes more.
        example: a small model file with it; needed where an argument other than a variable is required.
        label, judges, answers, made_of: see `layers.define.registry.LayerDef`.
    """

    name: str = ""
    takes: str = ""
    says: str = ""
    docs: Mapping[str, str] = {}
    kinds: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    returns: str = ""
    act: bool = False
    layer: bool = True
    example: str = ""
    label: str = ""
    judges: bool = False
    answers: bool = True
    made_of: str = ""


#: The layer of an activation, which layers take as `act`, too.
ACTIVATION = Face(act=True)


class Functional(Value):
    """A function of 2.x that calls the op's layer, and the class of `paddle.nn` that is made of it.

    Args:
        name: of the function; default: the op's.
        takes: its arguments, handed on by their places, or to the argument of the layer that they name; `name` is handed on only then.
        says: first line of its doc.
        module: name of the class; empty for none.
        layer: what is called; default: that of the op's name.
        at: where it is: `nn.functional` or `tensor`.
    """

    name: str = ""
    takes: str = "x name"
    says: str = ""
    module: str = ""
    layer: str = ""
    at: str = "nn.functional"
