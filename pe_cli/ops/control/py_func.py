"""py_func: a Python function between the native instructions of a step. Only Python can make one: no file holds code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, GradRequest, OpDesc, Sample, grad_name, op
from pe_cli.ops.define.schema import EMPTY
from pe_cli.ops.define.traits import ReportsData


def _double(x: Any) -> Any:
    return 2 * x


def _double_back(x: Any, out: Any, gradient: Any) -> Any:
    del x, out
    return 2 * gradient


@op(
    "py_func",
    traits=[ReportsData()],
    inputs="X*",
    outputs="Out*",
    attrs={
        "forward": Attr(None, "function of the arrays of X; a Python object, which no file can give"),
        "backward": Attr(None, "function of X, Out and the gradients of Out that returns those of X; null for no gradient"),
        "skip": Attr([], "names of variables that backward is not given"),
        "shapes": Attr([], "shape of each output; -1 is the size of that axis of the first input that has -1 there"),
        "dtypes": Attr([], "element type of each output"),
        "sources": Attr([], "for each output, the input that gives its sizes of -1; -1 where the function does"),
    },
    samples=[
        Sample(
            {"X": [(3, 4)]},
            {"forward": _double, "backward": _double_back, "shapes": [[3, 4]], "dtypes": ["float64"], "sources": [0]},
            "twice the input",
            keep=("X",),
        ),
        Sample(
            {"X": [(3, 4), (4, 3)]},
            {"forward": np.matmul, "shapes": [[3, 3]], "dtypes": ["float64"], "sources": [0]},
            "without a gradient",
            grad=False,
            keep=("X",),
        ),
    ],
)
def py_func(
    x: list[TensorType],
    *,
    forward: Any,
    backward: Any,
    skip: list[str],
    shapes: list[list[int]],
    dtypes: list[str],
    sources: list[int],
) -> tuple[list[TensorType]]:
    """Call a Python function in a step.

    Out = forward(X...)

    The function runs once on every device with its part of the batch, and holds the interpreter's lock meanwhile. Functions of one
    step run one after the other, in the program's order.

    Args:
        X: any types.
        forward: takes one array for each X; returns an array, or a list or tuple with one for each Out.
        backward: takes the arrays of X, of Out and of Out's gradients (None where there is none), without those in `skip`; returns
            one gradient for each X, None where it has none.

    Returns:
        Out: as declared.

    Raises:
        PeError: the function raises or returns something of another type: at that step, with what it raised as the cause.

    Source:
        fluid.layers.py_func.
    """
    del forward, backward, skip
    made = []
    for shape, dtype, source in zip(shapes, dtypes, sources, strict=True):
        sizes = tuple(x[source].shape[axis] if size == -1 and source >= 0 else size for axis, size in enumerate(shape))
        made.append(TensorType(sizes, dtype))
    return (made,)


def _checked(function: Any, what: str) -> Callable[..., Any]:
    if not callable(function):
        hint = "programs in files hold no Python functions: build it with fluid.layers.py_func"
        raise PeError(f"py_func has no function to call {what}, but {function!r}", hint=hint)
    return function  # type: ignore[no-any-return]


def _take(found: Any, outputs: Sequence[np.ndarray[Any, Any] | None], names: Sequence[str], what: str) -> None:
    """Copy what a function returned to its outputs; None is zeros where a gradient is asked for.

    Raises:
        PeError: another number of values, or a value of another type than declared.
    """
    # A function that is called for its effects, without outputs, returns None: that is no value.
    values = list(found) if isinstance(found, (list, tuple)) else [found] if outputs else []
    if len(values) != len(outputs):
        raise PeError(f"{what} returned {len(values)} values for {len(outputs)} variables", hint="return one for each")
    for value, out, name in zip(values, outputs, names, strict=True):
        if out is None:
            continue
        if value is None and "@GRAD" in name:
            out[...] = 0
            continue
        array = np.asarray(value)
        # NumPy computes in float64 unless told otherwise: it may become float32 here, but no float becomes an integer.
        if array.shape != out.shape or not np.can_cast(array.dtype, out.dtype, "same_kind"):
            got, wanted = f"{array.dtype}{list(array.shape)}", f"{out.dtype}{list(out.shape)}"
            raise PeError(f"{what} returned {got} for '{name}', which is {wanted}", hint="declare or return that type")
        out[...] = array


@py_func.lower("cpu")
def py_func_cpu(o: Lowering) -> None:
    """One call of the function."""
    function = _checked(o.attrs["forward"], "forward")
    outs = o.outputs("Out")
    names = [b.name for b in outs]

    def run(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        _take(function(*inputs), outputs, names, _name(function))

    o.host(run, _name(function), o.inputs("X"), outs)


@py_func.make_grad
def py_func_grad_of(request: GradRequest) -> list[OpDesc]:
    """The gradient op, which is given what `backward` asks for and nothing else."""
    op_ = request.op
    skipped = set(op_.attrs["skip"])
    names = op_.inputs.get("X", ())
    inputs = {slot: [EMPTY if n in skipped else n for n in row] for slot, row in (*op_.inputs.items(), *op_.outputs.items())}
    inputs["Out@GRAD"] = [request.grads.get(n, EMPTY) for n in op_.outputs["Out"]]
    wanted = {"X@GRAD": [request.wanted.get(n, EMPTY) for n in names]}
    return [OpDesc("py_func_grad", inputs, wanted, op_.attrs)]


@py_func.grad(uses="X Out").lower("cpu")
def py_func_grad_cpu(o: Lowering) -> None:
    """One call of the function, with None for gradients of outputs that nothing produced."""
    function = _checked(o.attrs["backward"], "backward")
    kept = [b for b in (*o.inputs("X"), *o.inputs("Out")) if b is not None]
    gradients: list[Buffer | None] = list(o.inputs("Out@GRAD"))
    wanted: list[Buffer | None] = list(o.outputs("X@GRAD"))
    names = [grad_name("input") if b is None else b.name for b in wanted]

    # Arguments come as in the original: X, Out, gradients of Out. None stands for a gradient that nothing made, which has no buffer.
    def run(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        given, left = list(inputs[: len(kept)]), iter(inputs[len(kept) :])
        given += [None if b is None else next(left) for b in gradients]
        made = iter(outputs)
        _take(function(*given), [None if b is None else next(made) for b in wanted], names, _name(function))

    there = [b for b in gradients if b is not None]
    o.host(run, _name(function), [*kept, *there], [b for b in wanted if b is not None])


def _name(function: Any) -> str:
    """Return the name of a function."""
    return str(getattr(function, "__name__", type(function).__name__))


# --- results of any shape -----------------------------------------------------------------------------------------------


@op(
    "py_func_free",
    inputs="X*",
    outputs="Out*",
    attrs={
        "forward": Attr(None, "function of the arrays of X; a Python object, which no file can give"),
        "shapes": Attr([], "shape that each output is declared with; what the function returns counts"),
        "dtypes": Attr([], "element type of each output"),
        "fits": Attr(False, "other ops read the results: sizes of shapes but -1 must be theirs"),
    },
    differentiable="",
    samples=[
        Sample({"X": [(3, 4)]}, {"forward": lambda x: x[:2], "shapes": [[3, 4]], "dtypes": ["float64"]}, "fewer rows", keep=("X",)),
    ],
)
def py_func_free(
    x: list[TensorType], *, forward: Any, shapes: list[list[int]], dtypes: list[str], fits: bool
) -> tuple[list[TensorType]]:
    """Call a Python function in a step, whose results may have any shape, and sequences.

    Executors put it for py_func where results are fetched alone, or where a function without a gradient says sizes; the program is cut
    there.

    Args:
        X: any types.
        forward: as that of py_func; inputs with sequences come with them (`lod.Leveled`), and results may have them.

    Returns:
        Out: of the declared types, for those who ask the program; a step gives what the function returns, cast to dtypes.

    Raises:
        PeError: the function raises, or returns another number of values, or of another kind than declared: with what it raised.

    Source:
        fluid.layers.py_func.
    """
    del x, forward, fits
    return ([TensorType(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)],)


@py_func_free.host_run
def py_func_free_host(run: HostRun) -> dict[str, list[Any]]:
    """One call of the function.

    Raises:
        PeError: see the op.
    """
    attrs = run.attrs
    function = _checked(attrs["forward"], "forward")
    try:
        found = function(*(v if v.lod else v.array for v in run.values.get("X", ())))
    except Exception as error:  # whatever a user's function raises
        raise PeError(f"py_func: {type(error).__name__}: {error}") from error
    values = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(values) != len(attrs["dtypes"]):
        raise PeError(f"{_name(function)} returned {len(values)} values for {len(attrs['dtypes'])} variables", hint="return one for each")
    made = []
    for value, dtype, shape in zip(values, attrs["dtypes"], attrs["shapes"], strict=True):
        array = np.asarray(value)
        sizes = zip(array.shape, shape, strict=False)
        wrong = attrs["fits"] and (array.ndim != len(shape) or any(size not in (-1, is_) for is_, size in sizes))
        if wrong or not np.can_cast(array.dtype, np.dtype(dtype), "same_kind"):
            message = f"py_func: {_name(function)} returned {array.dtype}{list(array.shape)} for {dtype}{list(shape)}"
            raise PeError(message, hint="declare or return that type")
        made.append(Leveled(array, value.lod) if isinstance(value, Leveled) else array)
    return {"Out": made}
not_in_onnx("it calls a Python function", "py_func", "py_func_free")
