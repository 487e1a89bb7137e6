"""BuildStrategy and ExecutionStrategy with every attribute of the original's, and which of them the core acts on.

`BUILD` and `EXECUTION` map every attribute; what the core's strategies have a field for is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum, StrEnum
from typing import Any, ClassVar

from pe_cli.core import strategy as core
from pe_cli.core.errors import did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import usable_cores
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, NotThereYet


class ReduceStrategy(StrEnum):
    """How gradients are joined."""

    AllReduce = "AllReduce"
    Reduce = "Reduce"


class GradientScaleStrategy(StrEnum):
    """What is written into the gradient of the loss."""

    CoeffNumDevice = "CoeffNumDevice"
    One = "One"
    Customized = "Customized"


@dataclass(frozen=True)
class Option:
    """One attribute.

    Args:
        default: the original's.
        why: where the core has no field of that name: why there is nothing to do; empty where it cannot act on it yet.
        kinds: types of its values; default: the default's.
    """

    default: Any
    why: str = ""
    kinds: tuple[type, ...] = ()


#: Attribute -> option. An attribute that is a field of the core's strategy is passed on; one that is not and has no `why`
#: can only keep its default until the core has that field.
BUILD: Mapping[str, Option] = {
    "reduce_strategy": Option(ReduceStrategy.AllReduce),
    "gradient_scale_strategy": Option(GradientScaleStrategy.CoeffNumDevice),
    "debug_graphviz_path": Option(""),
    "memory_optimize": Option(None, kinds=(bool, type(None))),
    "enable_inplace": Option(True),
    "enable_addto": Option(False),
    "fuse_elewise_add_act_ops": Option(False),
    "fuse_bn_act_ops": Option(False),
    "fuse_bn_add_act_ops": Option(False),
    "fuse_relu_depthwise_conv": Option(False),
    "fuse_all_optimizer_ops": Option(False),
    "fuse_all_reduce_ops": Option(True),
    "fuse_broadcast_ops": Option(True, kinds=(bool, type(None))),
    "sync_batch_norm": Option(False),
    "enable_auto_fusion": Option(False),
    "fuse_gemm_epilogue": Option(False),
    "enable_sequential_execution": Option(False),
    "enable_backward_optimizer_op_deps": Option(True),
    "remove_unnecessary_lock": Option(True, "there is no lock to remove"),
    "cache_runtime_context": Option(False, "prepared operators are always kept"),
    "enable_parallel_graph": Option(False),
    "async_mode": Option(False),
    "num_trainers": Option(1, "executors ask the processes"),
    "trainer_id": Option(0, "executors ask the processes"),
    "trainers_endpoints": Option([]),
    "is_distribution": Option(False),
    "nccl_comm_num": Option(1),
    "use_hierarchical_allreduce": Option(False),
    "hierarchical_allreduce_inter_nranks": Option(0),
    "enable_cuda_graph": Option(False),
    "mkldnn_enabled_op_types": Option(set()),
}

EXECUTION: Mapping[str, Option] = {
    "num_threads": Option(0),
    "num_iteration_per_drop_scope": Option(100),
    "num_iteration_per_run": Option(1),
    "allow_op_delay": Option(False),
    "use_thread_barrier": Option(False),
    "use_cuda": Option(False, "places say it"),
    "use_experimental_executor": Option(True, "there is one executor"),
    "dry_run": Option(False),
}

#: Names of 1.8 for others of these.
ALIASES = {"_dry_run": "dry_run"}


class _Strategy:
    """Attributes by a table of options; frozen once something was built with them."""

    options: ClassVar[Mapping[str, Option]] = {}
    fields: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        # Past `__setattr__`, which reads both of them.
        object.__setattr__(self, "_values", {name: option.default for name, option in self.options.items()})
        object.__setattr__(self, "_frozen", False)

    def __getattr__(self, name: str) -> Any:
        # By the dictionary: copying and unpickling ask for attributes before `__init__` has run.
        values = self.__dict__.get("_values", {})
        if ALIASES.get(name, name) in values:
            return values[ALIASES.get(name, name)]
        raise AttributeError(f"{type(self).__name__} has no '{name}'. {did_you_mean(name, self.options) or ''}".strip())

    def __setattr__(self, name: str, value: Any) -> None:
        kind, name = type(self).__name__, ALIASES.get(name, name)
        if name not in self.options:
            raise AttributeError(f"{kind} has no '{name}'. {did_you_mean(name, self.options) or ''}".strip())
        if self._frozen:
            hint = f"make a new {kind} for a new executor"
            raise EnforceNotMet(
                f"{kind} is frozen: a graph was built with it, {name} has no effect any more", hint=hint
            )
        option = self.options[name]
        value = _checked(f"{kind}.{name}", option, value)
        # The core has no field for it, so setting it could only be a promise that is not kept.
        if value != option.default and name not in self.fields and not option.why:
            hint = f"leave it at {_plain(option.default)!r}"
            raise NotThereYet(f"{kind}.{name} = {_plain(value)!r} is not there yet", hint=hint)
        self._values[name] = value

    def freeze(self) -> None:
        """Refuse changes from now on."""
        object.__setattr__(self, "_frozen", True)

    def chosen(self) -> dict[str, Any]:
        """Return the fields of the core's strategy that are set: field -> value."""
        return {name: _plain(self._values[name]) for name in self.options if name in self.fields}

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_plain(v)!r}' for k, v in self._values.items())})"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _checked(what: str, option: Option, value: Any) -> Any:
    """Return a value of an option's type.

    Raises:
        FluidTypeError: another type; a TypeError.
        FluidValueError: a number below 0, or no member of the enumeration; a ValueError.
    """
    default = option.default
    if isinstance(default, Enum):
        members = type(default)
        if not isinstance(value, members) and value not in [m.value for m in members]:
            known = ", ".join(m.name for m in members)
            kind = FluidValueError if isinstance(value, str) else FluidTypeError
            raise kind(f"{what} must be one of {known}, got {value!r}")
        return members(value)
    kinds = option.kinds or (type(default),)
    # bool is a subclass of int, and True is no number of threads.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise FluidTypeError(f"{what} must be {' or '.join(k.__name__ for k in kinds)}, got {value!r}")
    if isinstance(value, int) and value < 0:
        raise FluidValueError(f"{what} must be >= 0, got {value}")
    return value


def _names(kind: type[Any]) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind))


class BuildStrategy(_Strategy):
    """How the graph of a data-parallel program is built."""

    options = BUILD
    fields = _names(core.BuildStrategy) - {"use_hierarchical_allreduce", "fp16_allreduce"}
    ReduceStrategy = ReduceStrategy
    GradientScaleStrategy = GradientScaleStrategy

    def core(self) -> core.BuildStrategy:
        """Return the core's strategy."""
        found = self.chosen()
        # None means "as it sees fit", which is on.
        found["memory_optimize"] = found["memory_optimize"] is not False
        return core.BuildStrategy(**found)


class ExecutionStrategy(_Strategy):
    """How a graph is scheduled."""

    options = EXECUTION
    fields = _names(core.ExecutionStrategy)

    def core(self, devices: int) -> core.ExecutionStrategy:
        """Return the core's strategy.

        No number of threads means four for each device, as the documents say, but no more than cores: others would wait.
        """
        found = self.chosen()
        found["num_threads"] = found["num_threads"] or min(4 * devices, max(devices, usable_cores()))
        found.pop("num_iteration_per_run", None)  # the executors of the original's names repeat the step themselves
        return core.ExecutionStrategy(**found)
