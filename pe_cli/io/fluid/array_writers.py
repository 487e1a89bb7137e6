"""Arrays of tensors as the original has them: `write_to_array`, `read_from_array` and what joins or decodes their tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pe_cli.io.fluid.block_writer import GROUPS, Writer, skip, takes_arrays
from pe_cli.io.fluid.operator_writer import NotWritten, Written, writes
from pe_cli.io.fluid.program_desc import TENSOR_ARRAY
from pe_cli.program.ir import Operator


def place(made: Written, name: str) -> str:
    """Return the name of a place of an array, which the original takes as int64 alone."""
    if made.block.var(name).dtype == "int64":
        return name
    wide = made.beside(f"{name}.wide", "int64", (1,))
    made.emit("cast", {"X": [name]}, {"Out": [wide]}, {"in_dtype": made.block.var(name).dtype, "out_dtype": "int64"})
    return wide


def number(made: Written, value: int) -> str:
    """Return the name of a number, int64 [1]."""
    name = made.beside(f"number_{value}", "int64", (1,))
    made.emit("fill_constant", {}, {"Out": [name]}, {"shape": [1], "dtype": "int64", "value": float(value), "force_cpu": True})
    return name


@takes_arrays("array_put", "list_put")
@writes("array_put", "list_put")
def _put(made: Written, op: Operator) -> None:
    array = op.inputs["Array"][0]
    at = place(made, op.inputs["Index"][0])
    made.emit("write_to_array", {"X": op.inputs["X"], "I": [at]}, {"Out": [array]})
    _is_also(made, array, op.outputs["Out"][0])


def _is_also(made: Written, array: str, name: str) -> None:
    """Let a name be another one of an array."""
    if name != array:
        made.names[name] = made.name(array)
    made.arrays.add(name)


@takes_arrays("array_get", "list_get")
@writes("array_get", "list_get")
def _get(made: Written, op: Operator) -> None:
    made.emit("read_from_array", {"X": op.inputs["Array"], "I": [place(made, op.inputs["Index"][0])]}, op.outputs)


@takes_arrays("list_copy")
@writes("list_copy")
def _copy(made: Written, op: Operator) -> None:
    _is_also(made, op.inputs["Array"][0], op.outputs["Out"][0])


@takes_arrays("list_of")
@writes("list_of")
def _list_of(made: Written, op: Operator) -> None:
    array = op.outputs["Out"][0]
    made.declare(made.block.var(array), array=True)
    for at, name in zip(op.attrs["places"], op.inputs.get("X", []), strict=True):
        made.emit("write_to_array", {"X": [name], "I": [number(made, at)]}, {"Out": [array]})


@takes_arrays("list_join")
@writes("list_join")
def _join(made: Written, op: Operator) -> None:
    made.emit("tensor_array_to_tensor", {"X": op.inputs["Array"]}, op.outputs, dict(op.attrs))


@takes_arrays("list_first")
@writes("list_first")
def _first(made: Written, op: Operator) -> None:
    raise NotWritten("list_first")


@takes_arrays("first_rows")
@writes("first_rows")
def _first_rows(made: Written, op: Operator) -> None:
    name = op.inputs["X"][0]
    if name in made.arrays:
        # As many tensors were written as there are rows.
        made.emit("tensor_array_to_tensor", {"X": [name]}, op.outputs, {"axis": 0, "use_stack": True})
        return
    ends = made.narrow(op.inputs["Count"][0])
    made.emit("slice", {"Input": [name], "EndsTensor": [ends]}, op.outputs, {"axes": [0], "starts": [0], "infer_flags": [-1]})


@takes_arrays("shape")
@writes("shape")
def _shape(made: Written, op: Operator) -> None:
    name = op.inputs["Input"][0]
    if name not in made.arrays:
        made.same(op)
        return
    v = made.block.var(name)
    first, row = (made.beside(f"{name}.{word}", v.dtype, size) for word, size in (("first", v.shape[1:]), ("row", (1, *v.shape[1:]))))
    made.emit("read_from_array", {"X": [name], "I": [number(made, 0)]}, {"Out": [first]})
    made.emit("unsqueeze2", {"X": [first]}, {"Out": [row]}, {"axes": [0]})
    made.emit("shape", {"Input": [row]}, op.outputs)


@takes_arrays("beam_search_decode")
@writes("beam_search_decode")
def _decode(made: Written, op: Operator) -> None:
    arrays: dict[str, list[str]] = {}
    for slot in ("Ids", "Scores"):
        names = op.inputs[slot]
        arrays[slot] = names if names[0] in made.arrays else [_of_tensors(made, names)]
    made.emit(op.type, arrays, op.outputs, dict(op.attrs))


def _of_tensors(made: Written, names: Sequence[str]) -> str:
    v = made.block.var(names[0])
    array = made.beside(f"{names[0]}.array", v.dtype, tuple(v.shape), TENSOR_ARRAY)
    for i, name in enumerate(names):
        made.emit("write_to_array", {"X": [name], "I": [number(made, i)]}, {"Out": [array]})
    return array


# --- what an array begins as ----------------------------------------------------------------------------------------


def _begun(made: Written, ops: Sequence[Operator], wanted: Collection[str]) -> Mapping[int, Writer]:
    """Return operators that make the rows of an array, which begins empty in the file, and sizes for all rows."""
    found: dict[int, Writer] = {}
    makers = {op.outputs["Out"][0]: op for op in ops if op.outputs.get("Out")}
    read: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.input_names():
            read.setdefault(name, []).append(op)
    for op in ops:
        name = next(iter(op.outputs.get("Out", ())), "")
        if name in made.arrays and op.type in {"fill_constant", "fill_constant_batch_size_like", "fill_like"} and name not in wanted:
            found[id(op)] = _declared
            maker = makers.get(op.inputs["X"][0]) if op.type == "fill_like" else None
            while maker is not None and maker.type in {"expand", "unsqueeze"} and len(read[maker.outputs["Out"][0]]) == 1:
                found[id(maker)] = skip
                maker = makers.get(maker.inputs["X"][0])
        if op.type == "first_rows":
            of = makers.get(op.inputs["X"][0])
            if of is not None and of.type in {"fill_constant", "expand"} and len(read[op.inputs["X"][0]]) == 1 and len(of.outputs) == 1:
                _counted(found, of, op)
    return found


def _declared(made: Written, op: Operator) -> None:
    made.declare(made.block.var(op.outputs["Out"][0]), array=True)


def _counted(found: dict[int, Writer], of: Operator, op: Operator) -> None:
    """Make as many equal numbers as are counted, however large the array is here."""
    if of.type == "fill_constant" and len(of.attrs["shape"]) == 1 and not of.input_names():

        def write(made: Written, op: Operator) -> None:
            attrs = {"shape": [], "dtype": of.attrs["dtype"], "value": of.attrs["value"]}
            made.emit("fill_constant", {"ShapeTensor": [made.narrow(op.inputs["Count"][0])]}, op.outputs, attrs)
    elif of.type == "expand" and len(of.attrs["expand_times"]) == 1:

        def write(made: Written, op: Operator) -> None:
            times = [made.narrow(op.inputs["Count"][0])]
            made.emit("expand", {"X": of.inputs["X"], "ExpandTimes": times}, op.outputs, {"expand_times": []})
    else:
        return
    found[id(of)], found[id(op)] = skip, write


GROUPS.append(_begun)
