"""Operators that have another name, other slots or another form in PaddlePaddle 1.8.5."""

from __future__ import annotations

from typing import Any

from pe_cli.io.fluid.operator_writer import NotWritten, Written, writes
from pe_cli.program.ir import Operator


@writes("conv2d_transpose")
def _conv2d_transpose(made: Written, op: Operator) -> None:
    around, more = list(op.attrs["paddings"]), list(op.attrs["output_padding"])
    attrs: dict[str, Any] = {"paddings": around[::2] if around[::2] == around[1::2] else around}
    if any(more):
        shape = made.block.var(op.outputs["Output"][0]).shape[2:]
        if min(shape) < 1:
            raise NotWritten("conv2d_transpose to a size that is not known")
        attrs["output_size"] = list(shape)
    made.same(op, leave=("output_padding",), **attrs)


@writes("softmax_with_cross_entropy")
def _softmax_with_cross_entropy(made: Written, op: Operator) -> None:
    # The original has the limit of its Python names in its kernels.
    made.same(op, leave=("limit",))


@writes("bilinear_interp", "nearest_interp")
def _interp(made: Written, op: Operator) -> None:
    made.same(op, leave=("out_size",), interp_method=op.type.removesuffix("_interp"), data_layout="NCHW")


@writes("cast")
def _cast(made: Written, op: Operator) -> None:
    made.same(op, in_dtype=made.block.var(op.inputs["X"][0]).dtype)


@writes("lstm")
def _lstm(made: Written, op: Operator) -> None:
    if not op.inputs.get("ProjWeight"):
        made.same(op, leave=("proj_activation",))
        return
    outputs = {"Projection": op.outputs["Hidden"], "Cell": op.outputs["Cell"]}
    made.emit("lstmp", op.inputs, outputs, dict(op.attrs))


@writes("split")
def _split(made: Written, op: Operator) -> None:
    # An axis from the end makes the original's operator write outside of its memory.
    made.same(op, axis=op.attrs["axis"] % len(made.block.var(op.inputs["X"][0]).shape))


@writes("slice")
def _slice(made: Written, op: Operator) -> None:
    rank = len(made.block.var(op.inputs["Input"][0]).shape)
    slots = {"Starts": "StartsTensor", "Ends": "EndsTensor"}
    inputs = {"Input": op.inputs["Input"]}
    inputs |= {slots[slot]: [made.narrow(name) for name in op.inputs[slot]] for slot in slots if op.inputs.get(slot)}
    flags = [-1 if len(inputs) > 1 else 1] * len(op.attrs["axes"])
    made.emit(op.type, inputs, op.outputs, {**op.attrs, "axes": [axis % rank for axis in op.attrs["axes"]], "infer_flags": flags})


@writes("lstm_unit")
def _lstm_unit(made: Written, op: Operator) -> None:
    outputs = {slot: op.outputs[slot] for slot in ("C", "H")}
    if op.attrs["order"] == "ifog":
        made.emit(op.type, op.inputs, outputs, {"forget_bias": op.attrs["forget_bias"]})
        return
    # The original computes gates of another order one by one.
    cell = outputs["C"][0]
    rank, width = len(made.block.var(cell).shape), made.block.var(cell).shape[-1]
    parts = {gate: made.beside(f"{cell}.{gate}", shape=(-1, width)) for gate in op.attrs["order"]}
    made.emit("split", {"X": op.inputs["X"]}, {"Out": list(parts.values())}, {"num": 4, "axis": rank - 1})
    on = {gate: made.beside(f"{cell}.{gate}.on", shape=(-1, width)) for gate in (*parts, "f.biased", "kept", "new", "out")}
    made.emit("scale", {"X": [parts["f"]]}, {"Out": [on["f.biased"]]}, {"scale": 1.0, "bias": op.attrs["forget_bias"]})
    for gate, name in {**parts, "f": on["f.biased"]}.items():
        made.emit("tanh" if gate == "g" else "sigmoid", {"X": [name]}, {"Out": [on[gate]]})
    made.emit("elementwise_mul", {"X": op.inputs["C_prev"], "Y": [on["f"]]}, {"Out": [on["kept"]]}, {"axis": -1})
    made.emit("elementwise_mul", {"X": [on["i"]], "Y": [on["g"]]}, {"Out": [on["new"]]}, {"axis": -1})
    made.emit("elementwise_add", {"X": [on["kept"]], "Y": [on["new"]]}, {"Out": [cell]}, {"axis": -1})
    made.emit("tanh", {"X": [cell]}, {"Out": [on["out"]]})
    made.emit("elementwise_mul", {"X": [on["out"]], "Y": [on["o"]]}, {"Out": outputs["H"]}, {"axis": -1})


@writes("fill_constant_for_sequences")
def _fill_constant_for_sequences(made: Written, op: Operator) -> None:
    # Of a tensor with sequences these count there, too.
    made.emit("fill_constant_batch_size_like", {"Input": op.inputs["Input"]}, op.outputs, {**op.attrs, "input_dim_idx": 0})


@writes("transpose", "squeeze", "unsqueeze")
def _transpose(made: Written, op: Operator) -> None:
    # The first versions of these know fewer types of elements.
    made.same(op, f"{op.type}2")


@writes("sequence_mask")
def _sequence_mask(made: Written, op: Operator) -> None:
    if not op.inputs.get("Maxlen"):
        made.same(op)
        return
    steps = made.beside(f"{op.outputs['Y'][0]}.steps", "int32")
    from_ = made.block.var(op.inputs["Maxlen"][0]).dtype
    made.emit("cast", {"X": op.inputs["Maxlen"]}, {"Out": [steps]}, {"in_dtype": from_, "out_dtype": "int32"})
    made.emit(op.type, {"X": op.inputs["X"], "MaxLenTensor": [steps]}, op.outputs, {"maxlen": -1, "out_dtype": op.attrs["out_dtype"]})


@writes("ctc_align_sequences")
def _ctc_align_sequences(made: Written, op: Operator) -> None:
    made.same(op, "ctc_align", padding_value=0)


@writes("assign_value")
def _assign_value(made: Written, op: Operator) -> None:
    kind = op.attrs["dtype"]
    slot = {"float32": "fp32_values", "int32": "int32_values", "int64": "int64_values", "bool": "bool_values"}.get(kind)
    if slot is None:
        raise NotWritten(f"assign_value of {kind}")
    values = [int(v) if kind != "float32" else float(v) for v in op.attrs["values"]]
    made.emit(op.type, {}, op.outputs, {"shape": list(op.attrs["shape"]) or [1], "dtype": kind, slot: values})


@writes("fill_constant")
def _fill_constant(made: Written, op: Operator) -> None:
    made.same(op, shape=list(op.attrs["shape"]) or [1])


@writes("fill_like")
def _fill_like(made: Written, op: Operator) -> None:
    made.emit("fill_any_like", op.inputs, op.outputs, {"value": op.attrs["value"], "dtype": -1})


@writes("square_error_cost")
def _square_error_cost(made: Written, op: Operator) -> None:
    gap = made.beside(f"{op.outputs['Out'][0]}.gap")
    made.emit("elementwise_sub", {"X": op.inputs["X"], "Y": op.inputs["Y"]}, {"Out": [gap]}, {"axis": -1})
    made.emit("square", {"X": [gap]}, op.outputs)


@writes("swish")
def _swish(made: Written, op: Operator) -> None:
    if op.attrs["beta"] != 1.0:
        raise NotWritten("swish with a beta, which 1.8.5 leaves out")
    made.same(op)


@writes("round")
def _round(made: Written, op: Operator) -> None:
    raise NotWritten("round, which takes halves away from 0 in 1.8.5")


@writes("sync_batch_norm")
def _sync_batch_norm(made: Written, op: Operator) -> None:
    made.same(op, "batch_norm")


@writes("py_func")
def _py_func(made: Written, op: Operator) -> None:
    # Files hold the numbers of functions alone: the original's count those of a process in the order of its layers.
    before = made.block.ops[: next(i for i, other in enumerate(made.block.ops) if other is op)]
    first = sum(1 + (other.attrs["backward"] is not None) for other in before if other.type == "py_func")
    backward = -1 if op.attrs["backward"] is None else first + 1
    facts = {"forward_callable_id": first, "backward_callable_id": backward, "backward_skip_vars": list(op.attrs["skip"])}
    made.emit("py_func", {"X": op.inputs.get("X", [])}, {"Out": op.outputs.get("Out", [])}, facts)


@writes("fake_init", "lamb", "mine_hard_examples", "random_crop", "sequence_topk_avg_pooling")
def _otherwise(made: Written, op: Operator) -> None:
    raise NotWritten(op.type)
