"""What an op's lowering works with: buffers of known type in, kernel calls out. No address exists yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType, computed
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Numbers, Offset, Table
from pe_cli.kernels.cpu.no_op import nothing
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.kernels.cuda.language import CudaKernel
from pe_cli.kernels.language import Kernel
from pe_cli.kernels.math.tree_sum import Order
from pe_cli.ops.define.registry import OpDef
from pe_cli.ops.define.work_parts import thread_parts

__all__ = ["STATUS", "STEP", "Buffer", "Call", "Lowering", "Numbers", "Offset", "Table"]


@dataclass
class Lowering:
    """One op on one device, about to become kernel calls.

    Attributes:
        op: its definition.
        attrs: complete attributes.
        seed: of the program, for random ops, mixed with the op's own number: the same for this op on every device and at every step.
        sample_offset: index in the whole batch of the device's first sample.
        place: kind of the device that it is lowered for.
        share: number of this part of the op's rows, and how many parts there are; see `ByRows`.
        update_threads: threads that do an update together; see `Spreads`.
        threads: that its parts may run on; `areas` says how many are worth it.
        helped: one thread does most of the parts; others help where they have nothing to do.
        precision: of products on CUDA: float32, or tf32 or bf16, to which factors are rounded for tensor cores; sums are float32.
        libraries: of CUDA that calls may be offered to, see `library_calls.offer`.
        deterministic: whether what they do must give the same bits in every run.
        more: gradients that such an update adds to those of its slot Grad: a list like it for every further device.
        order: in which it adds them up.
        calls: what `call` collected.
        scratch_buffers: what `scratch` collected.
    """

    op: OpDef
    attrs: Mapping[str, Any]
    input_buffers: Mapping[str, Sequence[Buffer]]
    output_buffers: Mapping[str, Sequence[Buffer]]
    seed: int = 0
    sample_offset: int = 0
    share: tuple[int, int] = (0, 1)
    update_threads: int = 1
    threads: int = 1
    helped: bool = False
    precision: str = "float32"
    libraries: frozenset[str] = frozenset()
    deterministic: bool = True
    more: Sequence[Sequence[Buffer]] = ()
    order: Order = field(default_factory=Order)
    calls: list[Call] = field(default_factory=list)
    scratch_buffers: list[Buffer] = field(default_factory=list)
    place: str = "cpu"
    _only: str | None = None

    def input(self, slot: str) -> Buffer:
        """Return the only buffer of an input slot."""
        (found,) = self.input_buffers[slot]
        return found

    def output(self, slot: str) -> Buffer:
        """Return the only buffer of an output slot."""
        (found,) = self.output_buffers[slot]
        return found

    def inputs(self, slot: str) -> Sequence[Buffer]:
        """Return all buffers of an input slot, in order; empty when absent."""
        return self.input_buffers.get(slot, ())

    def outputs(self, slot: str) -> Sequence[Buffer]:
        """Return all buffers of an output slot, in order; empty when absent."""
        return self.output_buffers.get(slot, ())

    def has(self, slot: str) -> bool:
        """Return whether an optional slot is there (input or output; a gradient that nobody needs is not)."""
        return bool(self.input_buffers.get(slot) or self.output_buffers.get(slot))

    def row_parts(self, n: int, nbytes: int) -> list[tuple[int | None, int, int]]:
        """Return this share of the op's n rows, of nbytes in all, as parts for threads: (number, from, to); see `areas.thread_parts`."""
        number, shares = self.share
        begin, end = n * number // shares, n * (number + 1) // shares
        return [(part, begin + a, begin + b) for part, a, b in thread_parts(end - begin, self.threads, nbytes // shares)]

    def call(
        self,
        kernel: Kernel | CudaKernel,
        *args: Any,
        dtype: str | None = None,
        second: str | None = None,
        part: int | None = None,
    ) -> None:
        """Append a kernel call.

        Args:
            kernel: takes args in order: Buffer or Offset for pointers and Addr, Table or Numbers for PtrI64,
                int for Int, float for Real, STATUS for Status, STEP for PtrI64.
            dtype: element type T; default: of the first argument for a `Ptr` parameter, else of the first buffer.
            second: element type U; default: of the first argument for a `PtrU` parameter.
            part: see `Call`; where a cut decides in which order something is added up, it must depend on shapes alone.
        """
        params = getattr(kernel, "params", ())
        assert len(params) == len(args), f"{kernel}: takes {len(params)} arguments, got {len(args)}"
        self.calls.append(
            Call(
                kernel,
                args,
                dtype or _dtype_of(params, args, ("Ptr", "Addr")),
                second or _dtype_of(params, args, ("PtrU",)),
                part,
                self._only,
            )
        )

    def apart(self, append: Callable[[], None]) -> list[Call]:
        """Return the calls that something appends, which are then not among those of the op."""
        begin = len(self.calls)
        append()
        made = self.calls[begin:]
        del self.calls[begin:]
        return made

    def only(self, slot: str) -> None:
        """Say that the calls from here on write that output alone, and share no scratch with those for other outputs.

        Where a device's threads have enough to do side by side, the calls for each output are then scheduled by themselves.
        """
        self._only = slot

    def wait(self) -> None:
        """Let calls after this one wait for all before, where both have numbers of parts."""
        self.call(nothing)

    def host(
        self, fn: Callable[[Sequence[Any], Sequence[Any]], None], name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]
    ) -> None:
        """Append a call of a Python function.

        Args:
            fn: `fn(inputs, outputs)`, over arrays; fills the outputs.
            name: for profiles and messages.
            inputs, outputs: what it reads and writes.
        """
        kernel = HostKernel(fn, f"host:{name}", tuple(b.type for b in inputs), tuple(b.type for b in outputs))
        # The two element types say nothing here: every array comes with its own.
        self.calls.append(Call(kernel, (STATUS, *inputs, *outputs), "float32", "float32"))

    def scratch(self, elements: int, dtype: str = "float32", *, copies: bool = False) -> Buffer:
        """Return uninitialised memory that lives during this op only.

        Args:
            elements: how many.
            dtype: their type; on CUDA float32 where an op asks for the bfloat16 of its values, as it is going to add up.
            copies: values are copied there, so that they are as precise in bfloat16.
        """
        wide = self.place == "cuda" and not copies
        made = Buffer("scratch", TensorType((max(1, elements),), computed(dtype) if wide else dtype))
        self.scratch_buffers.append(made)
        return made

    def output_or_scratch(self, slot: str, elements: int, dtype: str = "float32") -> Buffer:
        """Return an output, or scratch memory of so many elements in its place where nobody wants it."""
        return self.output(slot) if self.has(slot) else self.scratch(elements, dtype)

    def scratch_like(self, b: Buffer) -> Buffer:
        """Return uninitialised memory of a buffer's type that lives during this op only."""
        made = Buffer("scratch", b.type)
        self.scratch_buffers.append(made)
        return made


def _dtype_of(params: Sequence[str], args: Sequence[Any], kinds: tuple[str, ...]) -> str:
    for wanted in kinds:
        for kind, arg in zip(params, args, strict=True):
            if kind == wanted:
                buffer = arg.buffer if isinstance(arg, Offset) else arg
                if isinstance(buffer, Buffer):
                    return buffer.dtype
    return "float32"
