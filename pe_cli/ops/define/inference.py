"""Types of what an op writes, from those of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError, WrongType
from pe_cli.core.types import DTYPES, TensorType, check_kind
from pe_cli.ops.define.registry import OpDef, forward_name

#: Sizes of an axis, and bytes of a variable, that no machine has; so sizes multiply without overflow.
MAX_SIZE, MAX_BYTES = 1 << 40, 1 << 46


def infer_types(
    definition: OpDef,
    inputs: Mapping[str, Sequence[TensorType]],
    attrs: Mapping[str, Any],
    forward: Callable[[str], TensorType] | None = None,
    output_names: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, list[TensorType]]:
    """Return the types of all outputs, slot -> list.

    Args:
        inputs: slot -> types of its variables; absent slots may be missing.
        attrs: complete attributes.
        forward: for gradient ops: type of the variable that a gradient belongs to.
        output_names: for gradient ops: slot -> names of the gradients that are wanted.

    Raises:
        PeError: the inputs do not fit, without a place; a WrongType where one has another element type than the op takes.
    """
    if definition.infer is None:
        assert forward is not None
        assert output_names is not None
        return {slot: [forward(forward_name(n)) for n in names] for slot, names in output_names.items()}
    args: list[Any] = []
    for slot in definition.inputs:
        given = list(inputs.get(slot.name, ()))
        if not given and not slot.optional and not slot.variadic:
            raise WrongType(f"op '{definition.name}' needs an input {slot.name}")
        if slot.name in definition.floats:
            for kind in given:
                check_kind(definition.name, kind.computed)
        args.append(given if slot.variadic else (given[0] if given else None))
    result = _inferred(definition, args, attrs)
    if not isinstance(result, tuple):
        result = (result,)
    assert len(result) == len(definition.outputs), f"{definition.name}: inference returned {len(result)} outputs"
    found = {
        slot.name: [] if got is None else (list(got) if isinstance(got, list) else [got])
        for slot, got in zip(definition.outputs, result, strict=True)
    }
    for kind in (k for kinds in found.values() for k in kinds):
        if any(size > MAX_SIZE for size in kind.shape) or kind.nbytes > MAX_BYTES:
            raise PeError(f"op '{definition.name}' would make {kind}, which no memory holds", hint="look at its sizes")
    return found


def _inferred(definition: OpDef, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    assert definition.infer is not None
    try:
        return definition.infer(*args, **attrs)
    except PeError as error:
        if isinstance(error, WrongType) or not _takes_other_types(definition, args, attrs):
            raise
        raise WrongType(error.message, at=error.at, hint=error.hint, notes=error.notes, code=error.code) from error.__cause__
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # values that no layer gives
        raise PeError(f"op '{definition.name}' cannot take {dict(attrs)!r:.200} with {args!r:.200}: {error}") from error


def _takes_other_types(definition: OpDef, args: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
    """Return whether an op that refuses some inputs would take them if those of one slot, or all, had another element type."""
    assert definition.infer is not None
    # An op's inference alone knows what it takes: asking it again tells a wrong element type from a wrong shape.
    for dtype in DTYPES:
        cast = [[_cast(t, dtype) for t in given] if isinstance(given, list) else _cast(given, dtype) for given in args]
        for others in (cast, *([*args[:i], other, *args[i + 1 :]] for i, other in enumerate(cast))):
            try:
                definition.infer(*others, **attrs)
            except (PeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                continue
            return True
    return False


def _cast(given: TensorType | None, dtype: str) -> TensorType | None:
    return given and TensorType(given.shape, dtype)
