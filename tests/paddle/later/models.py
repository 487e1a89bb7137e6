"""Networks of vision.models: names of their parameters, and what they answer. `python -m tests.paddle.later.models FILE` records them."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

#: Constructor -> arguments.
NAMES: dict[str, dict[str, Any]] = {
    **{f"resnet{n}": {} for n in (18, 34, 50, 101, 152)},
    **{f"resnext{n}_{g}x4d": {} for n in (50, 101, 152) for g in (32, 64)},
    "wide_resnet50_2": {}, "wide_resnet101_2": {}, "vgg11": {}, "vgg13": {"batch_norm": True}, "vgg16": {"with_pool": False}, "vgg19": {},
    "mobilenet_v1": {"scale": 0.5}, "mobilenet_v2": {"scale": 0.35}, "mobilenet_v3_small": {"scale": 0.6}, "mobilenet_v3_large": {},
    "LeNet": {}, "alexnet": {}, "inception_v3": {}, "googlenet": {}, "squeezenet1_0": {}, "squeezenet1_1": {},
    **{f"densenet{n}": {} for n in (121, 161, 169, 201, 264)},
    **{f"shufflenet_v2_{s}": {} for s in ("x0_25", "x0_33", "x0_5", "x1_0", "x1_5", "x2_0", "swish")},
}  # fmt: skip
#: Constructor of each class -> arguments, and the size of an image.
ANSWERS: dict[str, tuple[dict[str, Any], int]] = {
    "resnet18": ({}, 40), "resnext50_32x4d": ({}, 33), "mobilenet_v1": ({"scale": 0.25}, 40), "mobilenet_v2": ({"scale": 0.25}, 40),
    "mobilenet_v3_small": ({"scale": 0.35}, 40), "LeNet": ({}, 28), "alexnet": ({"num_classes": 0}, 70),
    "vgg11": ({"with_pool": False, "num_classes": 0}, 40),
    "inception_v3": ({}, 80), "googlenet": ({}, 224), "squeezenet1_0": ({}, 40), "squeezenet1_1": ({"with_pool": False}, 40),
    "densenet121": ({}, 40), "shufflenet_v2_x0_25": ({}, 40), "shufflenet_v2_swish": ({}, 40),
}  # fmt: skip


def made_of(paddle: Any, name: str) -> dict[str, Any]:
    """Return how many parameters a network has, of how many numbers, and the digest of their names, paths and shapes."""
    static = paddle.static
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
        network = getattr(paddle.vision.models, name)(**NAMES[name])
        rows = [(path, p.name, [int(s) for s in p.shape]) for path, p in network.named_parameters()]
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    return {"parameters": len(rows), "numbers": sum(int(np.prod(shape)) for *_, shape in rows), "digest": digest, "last": rows[-1]}


def _drawn(name: str, shape: tuple[int, ...]) -> Any:
    values = np.random.RandomState(zlib.crc32(name.encode()) % (1 << 31)).standard_normal(shape).astype("float32")
    return values * np.float32((2.0 / max(1, int(np.prod(shape[1:])) if len(shape) == 4 else shape[0])) ** 0.5)


def answer(paddle: Any, name: str) -> list[list[float]]:
    """Return what a network with values drawn by name answers to an image, in a program for tests."""
    static, (given, size) = paddle.static, ANSWERS[name]
    main = static.Program()
    scope = static.Scope()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard(), static.scope_guard(scope):
        network = getattr(paddle.vision.models, name)(**{"num_classes": 5, **given})
        shape = [1, 1 if name == "LeNet" else 3, size, size]
        made = network(static.data("image", shape))
        # Not `eval()`, which 2.6's BatchNorm does not look at in a static program.
        tests = main.clone(for_test=True)
        executor = static.Executor(paddle.CPUPlace())
        executor.run(static.default_startup_program())
        for parameter in main.all_parameters():
            shape_of = tuple(parameter.shape)
            if len(shape_of) > 1 or not parameter.name.startswith("batch_norm"):
                tensor = static.global_scope().find_var(parameter.name).get_tensor()
                tensor.set(_drawn(parameter.name, shape_of) if len(shape_of) > 1 else np.zeros(shape_of, "float32"), paddle.CPUPlace())
        results = made if isinstance(made, (list, tuple)) else [made]
        found = executor.run(tests, feed={"image": _drawn("image", tuple(shape)) * size}, fetch_list=list(results))
    return [[float(f"{v:.6g}") for v in np.asarray(one).ravel()[:20]] for one in found]


def main() -> None:
    """Write the recording."""
    import paddle

    paddle.enable_static()
    found = {"made_of": {n: made_of(paddle, n) for n in NAMES}, "answers": {n: answer(paddle, n) for n in ANSWERS}}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
