"""What a library of NVIDIA's may compute in the place of our kernels, said without any library: the same numbers in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.core.value_class import Value
from pe_cli.kernels.calls import Buffer, Call, buffers_of

#: Libraries by the names that CUDA's own loader knows them by.
CUBLAS, CUDNN, NCCL = "cublasLt", "cudnn", "nccl"


class Product(Value):
    """C = then(alpha A @ B) for a batch of matrices; all are stored row by row. Arguments: A, B, C, bias, workspace.

    Args:
        m, n, k: rows of A and C, columns of B and C, terms of a sum.
        a_transposed, b_transposed: whether the factor is the transpose of what is stored.
        a_row, b_row: elements from a stored row to the next; rows of C are n apart.
        batch: number of matrices of C.
        a_step, b_step, c_step: elements from a matrix to the next; 0 where all share one.
        dtype: of the factors.
        made: type of C and of the bias: float32 or bfloat16 where the factors are bfloat16, else that of the factors.
        precision: to which factors are rounded on their way: float32 for not at all, tf32 or bf16.
        alpha: factor.
        adds: whether the product is added to what C holds; alpha is 1 then, and there is no bias.
        bias: whether a number per column is added.
        relu: whether what is negative then becomes 0.
        deterministic: whether it must give the same bits in every run.
    """

    m: int
    n: int
    k: int
    a_transposed: bool
    b_transposed: bool
    a_row: int
    b_row: int
    batch: int
    a_step: int
    b_step: int
    c_step: int
    dtype: str
    made: str
    precision: str
    alpha: float = 1.0
    adds: bool = False
    bias: bool = False
    relu: bool = False
    deterministic: bool = True

    library = CUBLAS

    @property
    def title(self) -> str:
        """For plans and profiles."""
        return f"product_{self.batch}x{self.m}x{self.n}x{self.k}" if self.batch > 1 else f"product_{self.m}x{self.n}x{self.k}"


class Convolution(Value):
    """A convolution of channels-last images, or one of its gradients. Arguments: images, filters, outputs, workspace.

    Filters are [channels out, taps down, taps right, channels of a group]. A direction writes what it is named by and reads the two others.

    Args:
        direction: values, images_back, filters_back.
        n: images.
        image, out: rows, columns and channels of what is convolved and of what is made.
        taps, strides, before, after, dilations: down and to the right; padding above and to the left, below and to the right.
        groups: of channels.
        dtype: of everything.
        precision, deterministic: see `Product`.
    """

    direction: str
    n: int
    image: tuple[int, int, int]
    out: tuple[int, int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    dilations: tuple[int, int]
    groups: int
    dtype: str
    precision: str
    deterministic: bool = True

    library = CUDNN
    #: Whether an engine may compile its kernel when it is planned.
    compiled = False

    @property
    def title(self) -> str:
        """For plans and profiles."""
        (h, w, c), (*_, oc) = self.image, self.out
        return f"convolution_{self.direction}_{self.n}x{h}x{w}x{c}_to_{oc}"


class Attention(Value):
    """Attention of several heads, or its gradients, of bfloat16.

    Arguments of the values: Q, K, V, the mask, where there is one, Out, Level, workspace; the last three are written. Those of the
    gradients: Q, K, V, the mask, Out, Level, the gradients of Out, of Q, K and V, and workspace; the last four are written. Level and the
    mask are float32.

    Args:
        direction: values, back.
        batch, heads, queries, keys: numbers.
        width, wide: of a head of queries and keys, and of values.
        lines: elements from one row of Q, of K and of V to the next; those of Out lie one behind the other.
        mask: its sizes, of batches, heads, queries and keys; empty for none.
        causal: whether a query sees the keys up to its own position only.
        scale: factor on the products.
        deterministic: see `Product`.
    """

    direction: str
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    wide: int
    lines: tuple[int, int, int]
    mask: tuple[int, ...]
    causal: bool
    scale: float
    deterministic: bool = True

    library = CUDNN
    dtype, precision = BFLOAT16, "bf16"
    compiled = True

    @property
    def title(self) -> str:
        """For plans and profiles."""
        return f"attention_{self.direction}_{self.batch}x{self.heads}x{self.queries}x{self.keys}x{self.width}"


class _Kernel(Value):
    """A call of a library; two of them are never the same."""

    __eq__, __hash__ = object.__eq__, object.__hash__


class LibraryKernel(_Kernel):
    """A call that a library may make, and what is done where none does. A device decides which, see `settled` of its libraries.

    Args:
        what: the library is asked for.
        params: annotation names of the arguments.
        written: numbers of the library's arguments that are written, the last of them the workspace, which is its last argument.
        results: what the calls compute.
        own: our calls.
        before, after: calls of ours around the library's.
        given: calls that make numbers like those of a step of what is read, where some follow from others, before anything is measured.
    """

    what: Product | Convolution | Attention
    params: tuple[str, ...]
    written: frozenset[int]
    results: tuple[Buffer, ...]
    own: tuple[Call, ...]
    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()
    given: tuple[Call, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls of ours."""
        return *self.own, *self.before, *self.after, *self.given

    @property
    def arguments(self) -> int:
        """How many arguments are the library's; the others are buffers of our calls."""
        return 1 + max(self.written)

    @property
    def name(self) -> str:
        """For plans and profiles, which do not know what was chosen."""
        return f"{self.what.library}:{self.what.title}_or_ours"

    def __repr__(self) -> str:
        return f"<call of {self.name}>"


class SumKernel(_Kernel):
    """A sum over all devices by NCCL, in place. Arguments: the elements on every device.

    Args:
        params: annotation names of the arguments.
        root: number of the device that gets the sums; None for all.
        own: a call of ours for the same.
    """

    params: tuple[str, ...]
    root: int | None
    own: Call

    @property
    def name(self) -> str:
        """For plans and profiles."""
        return f"{NCCL}:{'all_reduce' if self.root is None else 'reduce'}"

    def __repr__(self) -> str:
        return f"<call of {self.name}>"


class AcrossKernel(_Kernel):
    """What processes do together by NCCL, on a device of each, in place. Arguments: stretches of elements.

    Args:
        what: all_reduce; all_gather, of elements of all processes, before which those of this one are at their place; reduce, after which
            the others hold something else; or broadcast.
        peers: the processes.
        parts: (argument, elements from, to, process that gets the sum or gives to all), together one exchange; of no process for the
            first two.
        params: annotation names of the arguments.
    """

    what: str
    peers: Any
    parts: tuple[tuple[int, int, int, int | None], ...]
    params: tuple[str, ...]

    @property
    def name(self) -> str:
        """For plans and profiles."""
        return f"{NCCL}:{self.what}_processes"

    def __repr__(self) -> str:
        return f"<call of {self.name}>"


def offer(
    calls: list[Call], begin: int, what: Product | Convolution | Attention, args: Sequence[Any], written: Sequence[int],
    results: Sequence[Buffer], *, before: Sequence[Call] = (), after: Sequence[Call] = (),
    given: Sequence[Call] = (),
) -> None:  # fmt: skip
    """Let a library take the place of the calls from one on, where a device finds it faster.

    Args:
        calls: of a lowering; those from begin on become one, which names all their buffers.
        begin: number of the first.
        what: of a library.
        args: of the library's call, the workspace last.
        written: numbers of those that are written.
        results: what all this is for.
        before, after, given: see `LibraryKernel`.
    """
    own = tuple(calls[begin:])
    named = [*args, *(b for b in _buffers((*own, *before, *after, *given)) if not any(b in buffers_of(arg) for arg in args))]
    kernel = LibraryKernel(what, ("Ptr",) * len(named), frozenset(written), tuple(results), own, tuple(before), tuple(after), tuple(given))
    calls[begin:] = [replace(own[-1], kernel=kernel, args=tuple(named), dtype=what.dtype, second=what.dtype)]


def _buffers(calls: Sequence[Call]) -> list[Buffer]:
    return list(dict.fromkeys(b for call in calls for arg in call.args for b in buffers_of(arg)))
