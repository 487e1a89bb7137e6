"""Random tensors: uniform_random, gaussian_random, truncated_gaussian_random. What startup programs initialise with."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Kernel, Ptr, PtrI64, Real, T, kernel
from pe_cli.kernels.math.random import normal, truncated_normal, uniform
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import STEP, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import FedSizes, Random
from pe_cli.ops.tensor.fill import like_batch


@kernel
def draw_uniform(out: Ptr, n: Int, low: Real, high: Real, seed: Int, step: PtrI64, fixed: Int):
    """out[i] = low + (high - low) * u, with u of [0, 1)."""
    # A seed of its own gives the same numbers at every step; the program's gives others.
    at = 0 if fixed else step[0]
    span = high - low
    for i in range(n):
        value = low + span * uniform(seed, at, i)
        out[i] = low if value >= high else value  # rounding may reach the upper end


@kernel
def draw_normal(out: Ptr, n: Int, mean: Real, std: Real, seed: Int, step: PtrI64, fixed: Int):
    """out[i] = mean + std * z."""
    at = 0 if fixed else step[0]
    for i in range(n):
        out[i] = mean + std * T(normal(seed, at, i))


@kernel
def draw_truncated(out: Ptr, n: Int, mean: Real, std: Real, seed: Int, step: PtrI64, fixed: Int):
    """out[i] = mean + std * z, with |z| <= 2."""
    at = 0 if fixed else step[0]
    for i in range(n):
        out[i] = mean + std * T(truncated_normal(seed, at, i))


_SHAPE = Attr([1], "sizes; no batch axis")
_DTYPE = Attr("float32", "element type", FLOATS)
_SEED = Attr(0, "own seed, the same numbers at every step; 0 takes the program's, with new numbers at every step")


def _made(name: str, shape: list[int], dtype: str) -> TensorType:
    if any(s < 0 for s in shape):
        raise PeError(f"{name} needs sizes of at least 0, got shape {shape}")
    return TensorType(tuple(shape), check_dtype(dtype))


def _samples(**attrs: float) -> list[Sample]:
    shapes = {"a matrix": [3, 5], "one element": [1], "nothing": [0, 3]}
    return [Sample({}, {"shape": shape, **attrs}, name) for name, shape in shapes.items()]


@op(
    "uniform_random",
    inputs="ShapeTensor?",
    attrs={
        "shape": _SHAPE,
        "dtype": _DTYPE,
        "min": Attr(-1.0, "lower end, drawn; no unit"),
        "max": Attr(1.0, "upper end, not drawn; no unit"),
        "seed": _SEED,
    },
    samples=_samples(min=2.0, max=3.0),
    differentiable="",
    traits=[Random(), FedSizes({"ShapeTensor": "shape"})],
)
def uniform_random(
    sizes: TensorType | None = None, *, shape: list[int], dtype: str, min: float, max: float, seed: int
) -> TensorType:
    """Draw numbers that are equally likely everywhere in [min, max).

    Element i is a pure function of the seed, the step and i; float32 gets 24 random bits, float64 53.

    Args:
        ShapeTensor: [axes] integers, instead of the attribute: only known in the step.
        shape: sizes.
        dtype: float32 or float64.
        min: lower end.
        max: upper end; min where both are equal.
        seed: see the attribute.

    Returns:
        Out: of that shape and element type.

    Raises:
        PeError: a negative size, or max < min.

    Source:
        fluid.layers.uniform_random; the generator is Philox4x32-10 (Salmon et al. 2011).
    """
    if max < min:
        raise PeError(f"uniform_random needs min <= max, got min {min} and max {max}", hint="swap them")
    if sizes is not None and -1 in shape:
        return TensorType(tuple(shape), check_dtype(dtype))
    return _made("uniform_random", shape, dtype)


def _gaussian(name: str, shape: list[int], dtype: str, std: float) -> TensorType:
    if std < 0:
        raise PeError(f"{name} needs std >= 0, got {std}")
    return _made(name, shape, dtype)


_GAUSSIAN = {
    "shape": _SHAPE,
    "dtype": _DTYPE,
    "mean": Attr(0.0, "centre, no unit"),
    "std": Attr(1.0, "standard deviation, no unit"),
    "seed": _SEED,
}


@op(
    "gaussian_random",
    inputs="ShapeTensor?",
    attrs=_GAUSSIAN,
    samples=_samples(mean=1.0, std=0.5),
    differentiable="",
    traits=[Random(), FedSizes({"ShapeTensor": "shape"})],
)
def gaussian_random(
    sizes: TensorType | None, *, shape: list[int], dtype: str, mean: float, std: float, seed: int
) -> TensorType:
    """Draw normally distributed numbers.

    Element i is mean + std * z, where z is the normal quantile of a uniform number that depends on the seed, the step
    and i alone.

    Args:
        ShapeTensor: [axes] integers, instead of the attribute: only known in the step.
        shape: sizes.
        dtype: float32 or float64.
        mean: centre.
        std: standard deviation, at least 0.
        seed: see the attribute.

    Returns:
        Out: of that shape and element type.

    Raises:
        PeError: a negative size or standard deviation.

    Source:
        fluid.layers.gaussian_random; quantile by Wichura 1988, algorithm AS 241.
    """
    if sizes is not None and -1 in shape:
        return TensorType(tuple(shape), check_dtype(dtype))
    return _gaussian("gaussian_random", shape, dtype, std)


@op("truncated_gaussian_random", attrs=_GAUSSIAN, samples=_samples(mean=1.0, std=0.5), traits=[Random()])
def truncated_gaussian_random(*, shape: list[int], dtype: str, mean: float, std: float, seed: int) -> TensorType:
    """Draw normally distributed numbers given that they lie within two standard deviations of the mean.

    Args:
        shape: sizes.
        dtype: float32 or float64.
        mean: centre.
        std: standard deviation before truncation, at least 0; after it, it is 0.880 of that.
        seed: see the attribute.

    Returns:
        Out: of that shape and element type, all in [mean - 2 std, mean + 2 std].

    Raises:
        PeError: a negative size or standard deviation.

    Source:
        fluid.initializer.TruncatedNormal.
    """
    return _gaussian("truncated_gaussian_random", shape, dtype, std)


def _draw(o: Lowering, kernel_: Kernel, first: str, second: str) -> None:
    out = o.output("Out")
    # A seed of 0 is no seed of its own, as in fluid.
    own = int(o.attrs["seed"])
    o.call(kernel_, out, product(out.shape), o.attrs[first], o.attrs[second], own or o.seed, STEP, int(own != 0))


@uniform_random.lower("cpu")
def uniform_random_cpu(o: Lowering) -> None:
    """One loop."""
    _draw(o, draw_uniform, "min", "max")


@gaussian_random.lower("cpu")
def gaussian_random_cpu(o: Lowering) -> None:
    """One loop."""
    _draw(o, draw_normal, "mean", "std")


@truncated_gaussian_random.lower("cpu")
def truncated_gaussian_random_cpu(o: Lowering) -> None:
    """One loop."""
    _draw(o, draw_truncated, "mean", "std")


# --- as many as another has -------------------------------------------------------------------------------------------


@kernel
def draw_uniform_rows(
    out: Ptr, n: Int, rows: Int, inner: Int, outer: Int, first: Int, low: Real, high: Real, seed: Int, step: PtrI64, fixed: Int
):
    """As draw_uniform; the numbers of a sample depend on its place in the whole batch."""
    at = 0 if fixed else step[0]
    span = high - low
    # A number is named by its sample's place in the whole batch, so that a device draws what one device alone would draw for it.
    for i in range(n):
        sample = (i // inner) % rows
        number = ((first + sample) * outer + i // (inner * rows)) * inner + i % inner
        value = low + span * uniform(seed, at, number)
        out[i] = low if value >= high else value


@kernel
def draw_normal_rows(
    out: Ptr, n: Int, rows: Int, inner: Int, outer: Int, first: Int, mean: Real, std: Real, seed: Int, step: PtrI64, fixed: Int
):
    """As draw_normal; the numbers of a sample depend on its place in the whole batch."""
    at = 0 if fixed else step[0]
    for i in range(n):
        sample = (i // inner) % rows
        # The sample's place in the whole batch, as above.
        number = ((first + sample) * outer + i // (inner * rows)) * inner + i % inner
        out[i] = mean + std * T(normal(seed, at, number))


_AXES = {
    "input_dim_idx": Attr(0, "axis of Input whose size is taken: that of the samples"),
    "output_dim_idx": Attr(0, "axis of shape that gets it"),
}


def _like_samples(**attrs: float) -> list[Sample]:
    return [
        Sample({"Input": (3, 2)}, {"shape": [-1, 4], **attrs}, "a row for each row"),
        Sample({"Input": (3, 2)}, {"shape": [2, 1, 5], "output_dim_idx": 1, **attrs}, "another axis"),
    ]


@op(
    "uniform_random_batch_size_like",
    faces=[
        Face(
            "", "input shape! dtype input_dim_idx output_dim_idx min max seed",
            "Draw numbers from [min, max) at every step, for as many samples as another tensor has.",
        ),
    ],
    inputs="Input",
    attrs={
        "shape": Attr([1], "sizes; that of one axis is taken from Input"),
        "dtype": _DTYPE,
        "min": Attr(-1.0, "lower end, drawn; no unit"),
        "max": Attr(1.0, "upper end, not drawn; no unit"),
        "seed": _SEED,
        **_AXES,
    },
    differentiable="",
    samples=_like_samples(min=2.0, max=3.0),
    traits=[Random()],
)
def uniform_random_batch_size_like(
    input: TensorType, *, shape: list[int], dtype: str, min: float, max: float, seed: int, input_dim_idx: int, output_dim_idx: int
) -> TensorType:
    """Draw numbers that are equally likely everywhere in [min, max), for as many samples as another tensor has.

    A sample's numbers depend on the seed, the step and its place in the whole batch, not on the devices that share the batch.

    Args:
        Input: any; only the size of one axis counts.
        shape: sizes; one of them is replaced.

    Returns:
        Out: shape, but for axis output_dim_idx, which has the size of axis input_dim_idx of Input.

    Raises:
        PeError: an axis that is not there, a negative size elsewhere, or max < min.

    Source:
        fluid.layers.uniform_random_batch_size_like.
    """
    if max < min:
        raise PeError(f"uniform_random_batch_size_like needs min <= max, got min {min} and max {max}", hint="swap them")
    return like_batch("uniform_random_batch_size_like", input, shape, dtype, input_dim_idx, output_dim_idx)


@op(
    "gaussian_random_batch_size_like",
    faces=[
        Face(
            "", "input shape! input_dim_idx output_dim_idx mean std seed dtype",
            "Draw normal numbers at every step, for as many samples as another tensor has.",
        ),
    ],
    inputs="Input",
    attrs={**_GAUSSIAN, "shape": Attr([1], "sizes; that of one axis is taken from Input"), **_AXES},
    differentiable="",
    samples=_like_samples(mean=1.0, std=0.5),
    traits=[Random()],
)
def gaussian_random_batch_size_like(
    input: TensorType, *, shape: list[int], dtype: str, mean: float, std: float, seed: int, input_dim_idx: int, output_dim_idx: int
) -> TensorType:
    """Draw normally distributed numbers for as many samples as another tensor has: the noise of a VAE, or the input of a generator.

    A sample's numbers depend on the seed, the step and its place in the whole batch, not on the devices that share the batch.

    Args:
        Input: any; only the size of one axis counts.
        shape: sizes; one of them is replaced.

    Returns:
        Out: shape, but for axis output_dim_idx, which has the size of axis input_dim_idx of Input.

    Raises:
        PeError: an axis that is not there, a negative size elsewhere, or a negative standard deviation.

    Source:
        fluid.layers.gaussian_random_batch_size_like.
    """
    if std < 0:
        raise PeError(f"gaussian_random_batch_size_like needs std >= 0, got {std}")
    return like_batch("gaussian_random_batch_size_like", input, shape, dtype, input_dim_idx, output_dim_idx)


def _draw_rows(o: Lowering, kernel_: Kernel, first: str, second: str) -> None:
    out = o.output("Out")
    axis = int(o.attrs["output_dim_idx"])
    outer, rows, inner = product(out.shape[:axis]), out.shape[axis], product(out.shape[axis + 1 :])
    own = int(o.attrs["seed"])
    # An empty tensor has no elements, but the kernel divides by these.
    numbers = (max(1, rows), max(1, inner), outer, o.sample_offset)
    o.call(kernel_, out, product(out.shape), *numbers, o.attrs[first], o.attrs[second], own or o.seed, STEP, int(own != 0))


@uniform_random_batch_size_like.lower("cpu")
def uniform_random_rows_cpu(o: Lowering) -> None:
    """One loop."""
    _draw_rows(o, draw_uniform_rows, "min", "max")


@gaussian_random_batch_size_like.lower("cpu")
def gaussian_random_rows_cpu(o: Lowering) -> None:
    """One loop."""
    _draw_rows(o, draw_normal_rows, "mean", "std")


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(draw_uniform, draw_normal, draw_truncated, draw_uniform_rows, draw_normal_rows)
also_on_cuda(uniform_random, gaussian_random, truncated_gaussian_random, uniform_random_batch_size_like, gaussian_random_batch_size_like)
