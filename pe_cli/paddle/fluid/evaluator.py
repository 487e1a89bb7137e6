"""fluid.evaluator: measures that add up inside the program, over all batches since `reset`.

Counts are variables that live between steps: `metrics` of an evaluator are those of the batch, `eval` reads the counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import detection_map, layers, unique_name
from pe_cli.paddle.fluid.framework import Program, program_guard
from pe_cli.paddle.fluid.initializer import Constant
from pe_cli.paddle.fluid.layer_helper import LayerHelper
from pe_cli.paddle.reference_names import missing


def _warn(kind: type) -> None:
    name = kind.__name__
    warnings.warn(f"fluid.evaluator.{name} is deprecated: fluid.metrics.{name} keeps its counts outside the program", stacklevel=4)


def _declared(program: Any, state: Any) -> Any:
    """Return a count in another program, which finds it in the scope by its name."""
    return program.global_block().create_var(state.name, state.type, persistable=True)


class Evaluator:
    """Base: counts in variables of the program.

    Args:
        name: of the measure, which names of variables begin with.
        kwargs: of `LayerHelper`.

    Attributes:
        states: variables with the counts.
        metrics: measures of the batch.
        helper: of the layer.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        _warn(type(self))
        self.states: list[Any] = []
        self.metrics: list[Any] = []
        self.helper = LayerHelper(name, **kwargs)

    def reset(self, executor: Any, reset_program: Any = None) -> None:
        """Set the counts to 0.

        Args:
            executor: runs that.
            reset_program: gets the ops; default: a program of its own.
        """
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            for state in self.states:
                # In the given program, or one made here: the scope connects both by the names of the counts.
                layers.fill_constant(list(state.shape), state.dtype, 0.0, out=_declared(program, state))
        executor.run(program)

    def eval(self, executor: Any, eval_program: Any = None) -> Any:
        """Return the measures of all batches.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no eval: define eval(self, executor, eval_program) for its states")

    def _create_state(self, suffix: str, dtype: Any, shape: Sequence[int]) -> Any:
        """Make a count, 0 at the start."""
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        state = self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape, stop_gradient=True)
        self.helper.set_variable_initializer(state, Constant(0.0))
        self.states.append(state)
        return state

    def _count(self, state: Any, found: Any) -> None:
        """Append what adds a batch's count."""
        layers.sums([state, found], out=state)

    def _counts(self, executor: Any, program: Any) -> list[Any]:
        """Return the counts as numbers."""
        program = Program() if program is None else program
        return [np.ravel(v)[0] for v in executor.run(program, fetch_list=[_declared(program, state) for state in self.states])]


class ChunkEvaluator(Evaluator):
    """Precision, recall and F1 of chunks.

    Args:
        input: tags of the network, [rows, 1] int64 with sequences.
        label: true tags likewise.
        chunk_scheme: IOB, IOE, IOBES or plain.
        num_chunk_types: kinds of chunks.
        excluded_chunk_types: kinds that do not count.
    """

    def __init__(
        self, input: Any, label: Any, chunk_scheme: str, num_chunk_types: int, excluded_chunk_types: Sequence[int] | None = None
    ) -> None:
        super().__init__("chunk_eval")
        names = ("num_infer_chunks", "num_label_chunks", "num_correct_chunks")
        states = [self._create_state(name, "int64", [1]) for name in names]
        self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks = states
        found = layers.chunk_eval(input, label, chunk_scheme, num_chunk_types, excluded_chunk_types)
        # `chunk_eval` returns precision, recall and F1 of the batch, and then three counts.
        for state, count in zip(states, found[3:], strict=True):
            self._count(state, count)
        self.metrics.extend(found[:3])

    def eval(self, executor: Any, eval_program: Any = None) -> Any:
        """Return precision, recall and F1 of all batches, float32 [1] each; 0 where there is no chunk."""
        inferred, labeled, right = (float(n) for n in self._counts(executor, eval_program))
        precision = right / inferred if inferred else 0.0
        recall = right / labeled if labeled else 0.0
        # Where any chunk is right, neither share is 0.
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        return tuple(np.array([v], np.float32) for v in (precision, recall, f1))


class EditDistance(Evaluator):
    """Mean edit distance of sequences, and the share of those that have an error.

    Args:
        input: ids of the network, [rows, 1] int64 with sequences.
        label: true ids likewise.
        ignored_tokens: ids that count in neither.
        kwargs: of `LayerHelper`.
    """

    def __init__(self, input: Any, label: Any, ignored_tokens: Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__("edit_distance", **kwargs)
        kinds = {"total_distance": "float32", "seq_num": "int64", "instance_error": "int64"}
        states = [self._create_state(name, dtype, [1]) for name, dtype in kinds.items()]
        self.total_distance, self.seq_num, self.instance_error = states
        distances, sequences = layers.edit_distance(input, label, ignored_tokens=ignored_tokens)
        zero = layers.fill_constant([1], "float32", 0.0)
        # The distance of equal sequences is exactly 0, divided by the label's length or not.
        right = layers.reduce_sum(layers.cast(layers.equal(distances, zero), "int64"))
        wrong = layers.elementwise_sub(sequences, right)
        total = layers.reduce_sum(distances)
        for state, found in zip(states, (total, sequences, wrong), strict=True):
            self._count(state, found)
        self.metrics += [total, wrong]

    def eval(self, executor: Any, eval_program: Any = None) -> Any:
        """Return the mean distance and the share of wrong sequences of all batches, float32 [1] each; NaN where there were none."""
        # NumPy's numbers: a division of Python's by 0 sequences would raise.
        total, sequences, wrong = (np.float32(n) for n in self._counts(executor, eval_program))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([total / sequences], np.float32), np.array([wrong / sequences], np.float32)


class DetectionMAP(detection_map.DetectionMAP):
    """Mean average precision of detections; arguments of `fluid.metrics.DetectionMAP`.

    Raises:
        FluidValueError: class_num is missing, or an unknown ap_version; a ValueError.
    """

    _SUFFIX: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: Any, **given: Any) -> None:
        _warn(type(self))
        super().__init__(*args, **given)

    @staticmethod
    def _flag() -> dict[str, str]:
        return {"HasState": unique_name.generate("_generated_var")}

    def eval(self, executor: Any, eval_program: Any = None) -> Any:
        """Refuse: the measure is a variable of the program.

        Raises:
            FluidValueError: always; a ValueError.
        """
        raise FluidValueError("DetectionMAP is fetched with a step", hint="fetch both variables of get_map_var()")


__all__ = ["ChunkEvaluator", "DetectionMAP", "EditDistance"]
__getattr__ = missing("fluid.evaluator", lambda: globals())
