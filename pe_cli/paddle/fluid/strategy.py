"""BuildStrategy and ExecutionStrategy with every attribute of the original's, and which of them the core acts on.

`BUILD` and `EXECUTION` are the only places to touch when the core learns an option: name its field, and widen `can`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from pe_cli.core import strategy as core
from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, NotThereYet


class ReduceStrategy(str, Enum):
    """How gradients are joined."""

    AllReduce = "AllReduce"
    Reduce = "Reduce"
    _NoReduce = "_NoReduce"


class GradientScaleStrategy(str, Enum):
    """What is written into the gradient of the loss."""

    CoeffNumDevice = "CoeffNumDevice"
    One = "One"
    Customized = "Customized"


@dataclass(frozen=True)
class Option:
    """One attribute.

    Args:
        default: the original's.
        can: values that the core acts on; () for all.
        field: of the core's strategy; empty where there is nothing to pass on.
        why: where `can` is () without a field: why there is nothing to do.
    """

    default: Any
    can: tuple[Any, ...] = ()
    field: str = ""
    why: str = ""


def _later(default: Any) -> Option:
    return Option(default, (default,))


BUILD: Mapping[str, Option] = {
    "reduce_strategy": Option(ReduceStrategy.AllReduce, (ReduceStrategy.AllReduce,), "reduce_strategy"),
    "gradient_scale_strategy": Option(
        GradientScaleStrategy.CoeffNumDevice, (GradientScaleStrategy.CoeffNumDevice,), "gradient_scale_strategy"
    ),
    "debug_graphviz_path": Option("", field="debug_graphviz_path"),
    "memory_optimize": Option(None, field="memory_optimize"),
    "enable_inplace": _later(True),
    "enable_addto": _later(False),
    "fuse_elewise_add_act_ops": _later(False),
    "fuse_bn_act_ops": _later(False),
    "fuse_bn_add_act_ops": _later(False),
    "fuse_relu_depthwise_conv": _later(False),
    "fuse_all_optimizer_ops": _later(False),
    "fuse_all_reduce_ops": _later(True),
    "fuse_broadcast_ops": Option(True, why="there is no broadcast to fuse"),
    "sync_batch_norm": _later(False),
    "enable_auto_fusion": _later(False),
    "enable_sequential_execution": _later(False),
    "enable_backward_optimizer_op_deps": _later(True),
    "remove_unnecessary_lock": Option(True, why="there is no lock to remove"),
    "cache_runtime_context": Option(False, why="prepared operators are always kept"),
    "enable_parallel_graph": _later(False),
    "async_mode": _later(False),
    "num_trainers": _later(1),
    "trainer_id": _later(0),
    "trainers_endpoints": _later([]),
    "is_distribution": _later(False),
    "nccl_comm_num": _later(1),
    "use_hierarchical_allreduce": _later(False),
    "hierarchical_allreduce_inter_nranks": _later(0),
    "enable_cuda_graph": _later(False),
    "mkldnn_enabled_op_types": Option(set(), (set(),)),
}

EXECUTION: Mapping[str, Option] = {
    "num_threads": Option(0, field="num_threads"),
    "num_iteration_per_drop_scope": Option(100, field="num_iteration_per_drop_scope"),
    "num_iteration_per_run": Option(1, why="the executor of the original's name loops"),
    "allow_op_delay": _later(False),
    "use_thread_barrier": _later(False),
    "use_cuda": Option(False, why="places say it"),
    "dry_run": _later(False),
}


class _Strategy:
    """Attributes by a table of options; frozen once something was built with them."""

    options: ClassVar[Mapping[str, Option]] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {name: option.default for name, option in self.options.items()})
        object.__setattr__(self, "_frozen", False)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no '{name}'. {did_you_mean(name, self.options) or ''}".strip())

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        if name not in self.options:
            raise AttributeError(f"{kind} has no '{name}'. {did_you_mean(name, self.options) or ''}".strip())
        if self._frozen:
            hint = f"make a new {kind} for a new executor"
            raise EnforceNotMet(f"{kind} is frozen: a graph was built with it, {name} has no effect any more", hint=hint)
        option = self.options[name]
        value = _checked(f"{kind}.{name}", option.default, value)
        if option.can and value not in option.can:
            hint = f"leave it at {_plain(option.default)!r}"
            raise NotThereYet(f"{kind}.{name} = {_plain(value)!r} is not there yet", hint=hint)
        self._values[name] = value

    def freeze(self) -> None:
        """Refuse changes from now on."""
        object.__setattr__(self, "_frozen", True)

    def chosen(self) -> dict[str, Any]:
        """Return what the core is told: field -> value."""
        return {o.field: _plain(self._values[name]) for name, o in self.options.items() if o.field}

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_plain(v)!r}' for k, v in self._values.items())})"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _checked(what: str, default: Any, value: Any) -> Any:
    """Return a value of the default's type.

    Raises:
        FluidTypeError: another type; a TypeError.
        FluidValueError: a number below 0, or no member of the enumeration; a ValueError.
    """
    if default is None or isinstance(default, bool):
        if isinstance(value, bool) or (value is None and default is None):
            return value
        raise FluidTypeError(f"{what} must be True or False, got {value!r}")
    if isinstance(default, Enum):
        members = type(default)
        if value not in [m.value for m in members] and not isinstance(value, members):
            known = ", ".join(m.name for m in members if not m.name.startswith("_"))
            kind = FluidValueError if isinstance(value, str) else FluidTypeError
            raise kind(f"{what} must be one of {known}, got {value!r}")
        return members(value)
    if not isinstance(value, type(default)) or isinstance(value, bool):
        raise FluidTypeError(f"{what} must be {type(default).__name__}, got {value!r}")
    if isinstance(value, int) and value < 0:
        raise FluidValueError(f"{what} must be >= 0, got {value}")
    return value


class BuildStrategy(_Strategy):
    """How the graph of a data-parallel program is built."""

    options = BUILD
    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy

    def core(self) -> core.BuildStrategy:
        """Return the core's strategy."""
        found = self.chosen()
        found["memory_optimize"] = found["memory_optimize"] is not False
        return core.BuildStrategy(**found)


class ExecutionStrategy(_Strategy):
    """How a graph is scheduled."""

    options = EXECUTION

    def core(self, devices: int) -> core.ExecutionStrategy:
        """Return the core's strategy; no number of threads means four for each device, as the documents say."""
        found = self.chosen()
        found["num_threads"] = found["num_threads"] or 4 * devices
        return core.ExecutionStrategy(**found)
