"""DetectionMAP: mAP of detections in a program, of a batch and of all batches since a reset."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers, unique_name
from pe_cli.paddle.fluid.framework import Program, default_main_program, default_startup_program, program_guard


def _zeros(name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Let the startup program fill a variable with 0."""
    block = default_startup_program().global_block()
    block.create_var(name=name, shape=shape, dtype=dtype, persistable=True)
    attrs = {"shape": list(shape), "dtype": dtype, "value": 0.0}
    block.append_op(type="fill_constant", inputs={}, outputs={"Out": block.var(name)}, attrs=attrs)


class DetectionMAP:
    """Appends the measures of detections to the program.

    Args:
        input: [detections, 6] float32: class, score, left, top, right, bottom, with a sequence for each image.
        gt_label: [boxes, 1]: classes, with a sequence for each image.
        gt_box: [boxes, 4], with sequences likewise.
        gt_difficult: [boxes, 1]: 1 for difficult ones; none by default.
        class_num: classes, background included.
        background_label: class that is none.
        overlap_threshold: a detection is right that overlaps a true box by more.
        evaluate_difficult: difficult ones count, too.
        ap_version: integral or 11point.

    Raises:
        FluidValueError: class_num is missing, or an unknown ap_version; a ValueError.
    """

    #: What the name of the flag that says that there is a state ends with.
    _SUFFIX: Mapping[str, str] = MappingProxyType({"HasState": "has_state"})

    def __init__(  # noqa: PLR0913, PLR0917 (fluid's arguments)
        self,
        input: Any,
        gt_label: Any,
        gt_box: Any,
        gt_difficult: Any = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise FluidValueError("DetectionMAP needs class_num", hint="the number of classes, background included")
        if ap_version not in ("integral", "11point"):
            raise FluidValueError(f"DetectionMAP: ap_version is {ap_version!r}", hint="integral or 11point")
        columns = [gt_label, *([gt_difficult] if gt_difficult is not None else []), gt_box]
        # Columns that the op knows: class, the mark of difficult boxes where it is given, then the box.
        self._label = layers.concat([layers.cast(v, gt_box.dtype) if v is not gt_box else v for v in columns], axis=1)
        self._input = input
        self._attrs = {
            "class_num": class_num,
            "background_label": background_label,
            "overlap_threshold": float(overlap_threshold),
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
        }
        self._cur_map = self._append({}, {})
        program, prefix = default_main_program(), unique_name.generate("map_eval")
        kinds = {"PosCount": "accum_pos_count", "TruePos": "accum_true_pos", "FalsePos": "accum_false_pos", **self._SUFFIX}
        names = {slot: f"{unique_name.generate(prefix)}_{kind}" for slot, kind in kinds.items()} | self._flag()
        shapes = {"HasState": ((1,), "int32"), "PosCount": ((class_num, 1), "int32")}
        block, states = program.global_block(), {}
        for slot, name in names.items():
            shape, dtype = shapes.get(slot, ((1, 3), "float32"))
            _zeros(name, shape, dtype)
            # How many detections there are is known in a step only.
            known = shape if slot in shapes else (-1, 3)
            states[slot] = block.create_var(name, TensorType(known, dtype), persistable=True, stop_gradient=True)
        self._has_state = states["HasState"]
        # The op writes its counts where it read them: the next step goes on from there.
        kept = {f"Accum{slot}": states[slot] for slot in ("PosCount", "TruePos", "FalsePos")}
        self._accum_map = self._append(states, kept)
        # From the first step on there is a state; `reset` says that there is none.
        layers.fill_constant([1], "int32", 1, out=self._has_state)

    @staticmethod
    def _flag() -> dict[str, str]:
        """Return the name of the flag that says that there is a state, where no suffix makes it."""
        return {}

    def _append(self, states: dict[str, Any], kept: dict[str, Any]) -> Any:
        """Append the op, and return the measure."""
        outs = ["MAP", *(s for s in ("AccumPosCount", "AccumTruePos", "AccumFalsePos") if s not in kept)]
        inputs = {"DetectRes": self._input, "Label": self._label, **states}
        found = LayerHelper("detection_map").op("detection_map", inputs, self._attrs, tuple(outs), kept)
        for v in found:
            v.stop_gradient = True
        return found[0]

    def get_map_var(self) -> tuple[Any, Any]:
        """Return the measure of the batch, and that of all batches since the last reset."""
        return self._cur_map, self._accum_map

    def reset(self, executor: Any, reset_program: Any = None) -> None:
        """Forget the batches so far.

        Raises:
            FluidTypeError: reset_program is no program.
        """
        program = Program() if reset_program is None else reset_program
        if not isinstance(program, Program):
            raise FluidTypeError(f"reset_program is {type(program).__name__}, not a Program")
        # A program of its own, which writes the scope's variable by its name.
        with program_guard(program):
            block = program.global_block()
            made = block.create_var(self._has_state.name, TensorType((1,), "int32"), persistable=True)
            layers.fill_constant([1], "int32", 0, out=made)
        executor.run(program)


__all__ = ["DetectionMAP"]
