"""Names of PaddlePaddle 2.6.2 and their arguments: each is there, or refused with a reason (`recordings/names_2_6.json`)."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from pe_cli.paddle import errors
from pe_cli.paddle.refused_names import Refused
from pe_cli.paddle.refused_v2_names import REASONS
from tests.paddle.recordings.names_2_6 import MODULES, arguments

RECORDED = json.loads((Path(__file__).parent / "recordings" / "names_2_6.json").read_text())
#: Whose arguments are others, by module: those of fluid's function of that name, and those that come later or have no use here.
OTHERWISE = {
    "paddle": (
        "ParamAttr Tensor bitwise_and_ bitwise_not_ bitwise_or_ bitwise_xor_ complex divide divide_ dtype floor_divide "
        "floor_divide_ kron log1p logical_and_ logical_not_ logical_or_ logsumexp matmul maximum minimum mod mod_ multiply "
        "multiply_ reshape subtract summary trace"
    ),
    "paddle.nn": "ClipGradByGlobalNorm ClipGradByNorm ClipGradByValue Hardsigmoid KLDivLoss MSELoss Softmax2D SpectralNorm",
    "paddle.nn.functional": "temporal_shift",
    "paddle.static": (
        "InputSpec Print Variable WeightNormParamAttr append_backward auc save save_inference_model serialize_persistables "
        "serialize_program"
    ),
    "paddle.static.nn": "cond prelu while_loop",
    "paddle.optimizer": "Adadelta Adagrad Adam AdamW Adamax Lamb Momentum Optimizer RMSProp SGD",
    "paddle.vision.transforms": "RandomRotation",
    "paddle.vision.datasets": "Cifar10 Cifar100 FashionMNIST Flowers MNIST VOC2012",
    "paddle.vision.ops": "yolo_box",
    "paddle.linalg": "inv",
}


@pytest.mark.parametrize("path", MODULES)
def test_every_name_is_there_with_its_arguments_or_refused_with_a_reason(path: str) -> None:
    module = importlib.import_module(f"pe_cli.{path}")
    other, refused = set(OTHERWISE.get(path, "").split()), set()
    for name, wanted in RECORDED[path].items():
        found = getattr(module, name)
        if isinstance(found, Refused):
            refused.add(name)
            with pytest.raises(errors.NotThereYet, match=f"{name} is not there: "):
                found()
        elif wanted:
            assert (arguments(found) != wanted) == (name in other), f"{path}.{name}: {arguments(found)}; 2.6.2 has {wanted}"
    assert other <= set(RECORDED[path])
    said = {p.removeprefix(f"{path}.") for p in REASONS if p.startswith(f"{path}.")}
    assert {name for name in said if name in RECORDED[path]} <= refused


def test_the_page_names_what_is_refused() -> None:
    page = (Path(__file__).parents[2] / "docs" / "parity.md").read_text(encoding="utf-8")
    for path in REASONS:
        assert path.rpartition(".")[2] == "*" or f"`{path.removeprefix('paddle.')}`" in page, path
