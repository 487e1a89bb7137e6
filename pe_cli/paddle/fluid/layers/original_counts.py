"""How many names of each key the original's loops, branches and decoders use up, apart from those of the script's own functions.

Names that come later follow from these. Recorded from PaddlePaddle 1.8.5 by tests/paddle/recordings/names_used.py, and compared in
tests/paddle/test_names_used.py.
"""

from __future__ import annotations

from collections.abc import Mapping

Counts = Mapping[str, int]
#: A `Switch` case; further ones also join two conditions twice.
FIRST_CASE: Counts = {"conditional_block": 1, "logical_not": 1, "_generated_var": 1}
NEXT_CASE: Counts = {**FIRST_CASE, "logical_and": 2}
DEFAULT_CASE: Counts = {"conditional_block": 1, "_generated_var": 1}
#: Further layers of a step of a GRU; its gates' functions are those of the script, or sigmoid and tanh.
GRU_STEP: Counts = {"concat": 2, "matmul": 2, "elementwise_add": 2, "split": 1, "tmp": 5}
LSTM_STEP: Counts = {
    "concat": 1, "matmul": 1, "elementwise_add": 3, "split": 1, "sigmoid": 3, "tanh": 2, "elementwise_mul": 2, "tmp": 1,
}  # fmt: skip
#: What marks the steps that count of `rnn` with lengths, and what keeps a state behind the end of a sequence.
LENGTHS: Counts = {"shape": 1, "sequence_mask": 1, "transpose": 1}
KEPT_STATE: Counts = {"elementwise_mul": 2, "tmp": 2}
#: The first `step_input` of a DynamicRNN, and what goes on from round to round.
RANKED: Counts = {
    "lod_rank_table": 1, "dynamic_rnn_max_seq_len": 1, "fill_constant": 1, "increment": 1, "less_than": 1,
}  # fmt: skip
#: Where a BeamSearchDecoder begins, apart from its states.
BEAMS_BEGIN: Counts = {
    "shape": 1, "fill_constant": 3, "unsqueeze2": 1, "expand": 3, "assign": 1, "fill_constant_batch_size_like": 1, "zeros_like": 1,
}  # fmt: skip


def branches(outputs: int, functions: int) -> Counts:
    """Return what `cond` uses up before the names of its outputs.

    Args:
        outputs: variables that it returns.
        functions: 1 or 2, of which one is taken.
    """
    merged = {"cast": 1, "select_input": outputs} if outputs else {}
    return {
        "cond": 1,
        "conditional_block": functions,
        "_generated_var": functions * (1 + outputs),
        "assign": functions * outputs,
        "logical_not": functions - 1,
        **merged,
    }


def decoding_begins(inputs: int, states: int, *, limited: bool, is_test: bool) -> Counts:
    """Return what `dynamic_decode` uses up between `initialize` and the first step.

    Args:
        inputs, states: variables.
        limited: max_step_num is given.
        is_test: nothing is kept of the steps.
    """
    arrays = 0 if is_test else inputs + states
    return {
        "fill_constant": 1 + limited,
        "logical_not": 1,
        "reduce_all": 1,
        "while": 1,
        "cast": 1,
        "zeros_like": 1,
        "array_write": arrays,
        "array_read": arrays,
    }


def decoding_ends(inputs: int, states: int, outputs: int, *, limited: bool, is_test: bool) -> Counts:
    """Return what `dynamic_decode` uses up behind a step, and in front of `finalize`; arguments are those of `decoding_begins`."""
    kept = inputs + states
    return {
        "logical_or": 1,
        "elementwise_add": 1,
        "cast": 1,
        "logical_not": 2,
        "array": outputs,
        "array_write": outputs + (0 if is_test else kept),
        "increment": 1,
        "assign": 2 + (kept if is_test else 0),
        "reduce_all": 1,
        "less_equal": int(limited),
        "logical_and": int(limited),
        "_generated_var": 1,
        "tensor_array_to_tensor": outputs,
        "array_read": 0 if is_test else states,
    }


def finished_state(dtype: str) -> Counts:
    """Return what keeps a state of an element type that is finished."""
    return {"cast": 4 if dtype == "bool" else 1, "elementwise_mul": 2, "tmp": 2}


def beams_step(states: int) -> Counts:
    """Return what chooses the best continuations of the beams, for cells with so many states."""
    gathered = states + 3
    each = {"cast": 1, "range": 1, "fill_constant": 2, "unsqueeze2": 1, "expand": 1, "stack": 1, "gather_nd": 1}
    more = {
        "fill_constant": 1, "assign": 1, "log": 1, "softmax": 1, "cast": 2, "unsqueeze2": 1, "expand": 1, "elementwise_mul": 2, "tmp": 3,
        "elementwise_add": 1, "reshape2": 2, "top_k": 1, "elementwise_floordiv": 1, "elementwise_mod": 1, "logical_not": 1,
        "logical_or": 1, "equal": 1,
    }  # fmt: skip
    return {key: more.get(key, 0) + gathered * each.get(key, 0) for key in {**more, **each}}
