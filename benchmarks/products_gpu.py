"""Matrix products on a card: TFLOP/s of ours and of torch.matmul in float32, tf32 and bf16, and the largest error of a sample.

Usage: python benchmarks/products_gpu.py [M,K,N ...]; errors are relative to the largest element, against float64 on the host.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import numpy as np  # noqa: E402

from pe_cli.core.types import TensorType  # noqa: E402
from pe_cli.devices import cuda_driver  # noqa: E402
from pe_cli.devices.cuda_driver_protocol import Extent  # noqa: E402
from pe_cli.devices.cuda_kernel_launches import built_of, calls_of, shape_of  # noqa: E402
from pe_cli.kernels.calls import Buffer, Numbers  # noqa: E402
from pe_cli.ops.define.lowering import Lowering  # noqa: E402
from pe_cli.ops.define.registry import discover  # noqa: E402

SHAPES = ("4096,4096,4096", "64,784,200", "128,1024,1024", "8192,64,64", "1024,1024,1024", "784,64,200", "4095,4093,4097")
PRECISIONS = ("float32", "tf32", "bf16")
SAMPLE = 64


def launches(x: Any, y: Any, precision: str) -> tuple[list[Callable[[], None]], Any]:
    """Return what computes x @ y with our kernels, and where the result goes."""
    driver, m, n = cuda_driver.only_driver(), x.shape[0], y.shape[1]
    types = {"X": x.shape, "Y": y.shape, "Out": (m, n)}
    held = {slot: Buffer(slot, TensorType(shape, "float32")) for slot, shape in types.items()}
    o = Lowering(discover()["matmul"], {"transpose_X": False, "transpose_Y": False, "alpha": 1.0},
                 {"X": [held["X"]], "Y": [held["Y"]]}, {"Out": [held["Out"]]}, precision=precision)  # fmt: skip
    o.op.lowerings["cuda"](o)
    places: dict[int, Extent] = {}

    def place(b: Buffer) -> Extent:
        if id(b) not in places:
            size = 4 * b.type.size
            places[id(b)] = Extent(driver.allocate(size), size)
        return places[id(b)]

    driver.write(place(held["X"]).address, x)
    driver.write(place(held["Y"]).address, y)
    made = []
    for call in calls_of(o.calls):
        args = []
        for arg in call.args:
            if isinstance(arg, Numbers):
                values = np.array([*arg.values, 0], np.int64)
                at = Extent(driver.allocate(values.nbytes), values.nbytes)
                driver.write(at.address, values)
                args.append(at)
            else:
                args.append(place(arg) if isinstance(arg, Buffer) else arg)
        made.append(driver.launcher(built_of(call), *shape_of(call), args))
    return made, (place(held["Out"]), [call.kernel.name.split(":")[1] for call in o.calls], o)


def seconds(run: Callable[[], None], wait: Callable[[], None], flops: float) -> float:
    """Return the median of five times of a few runs each."""
    run()
    wait()
    times, count = [], max(5, min(200, int(2e12 / flops)))
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        times.append((time.perf_counter() - begin) / count)
    return sorted(times)[2]


def main() -> None:
    """Print a line for each shape and precision."""
    import torch

    driver, rng = cuda_driver.only_driver(), np.random.default_rng(0)
    side = f"{'TFLOP/s':>8} {'error':>8}"
    print(f"{'shape':>16} {'precision':9} {'ours us':>9} {side} {'torch us':>9} {side} ratio  kernels")
    for text in sys.argv[1:] or SHAPES:
        m, k, n = map(int, text.split(","))
        x, y = (rng.standard_normal(s, np.float32) for s in ((m, k), (k, n)))
        rows = rng.integers(0, m, min(m, SAMPLE))
        exact = x[rows].astype(np.float64) @ y.astype(np.float64)
        scale, flops = np.abs(exact).max(), 2.0 * m * n * k
        for precision in PRECISIONS:
            runs, (out, names, _) = launches(x, y, precision)
            found = np.zeros((m, n), np.float32)

            def ours(runs: Any = runs) -> None:
                for launch in runs:
                    launch()

            own = seconds(ours, driver.wait, flops)
            driver.read(out.address, found)
            again = np.zeros_like(found)
            ours()
            driver.read(out.address, again)
            assert np.array_equal(found, again), "other bits in another run"
            error = np.abs(found[rows] - exact).max() / scale
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            a, b = (torch.from_numpy(v).cuda().to(torch.bfloat16 if precision == "bf16" else torch.float32) for v in (x, y))
            made = torch.empty(m, n, device="cuda", dtype=a.dtype)
            other = seconds(partial(torch.matmul, a, b, out=made), torch.cuda.synchronize, flops)
            theirs = np.abs(made[torch.from_numpy(rows).cuda()].double().cpu().numpy() - exact).max() / scale
            rate = [flops / t / 1e12 for t in (own, other)]
            print(
                f"{text:>16} {precision:9} {own * 1e6:9.1f} {rate[0]:8.2f} {error:8.1e} {other * 1e6:9.1f} {rate[1]:8.2f} {theirs:8.1e}"
                f" {other / own:5.2f}  {' '.join(names)}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
