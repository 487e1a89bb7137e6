"""Portable instructions: code, and so bits, that do not depend on the processor that they are compiled on or run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.compiler import target
from tests.needs import needs
from tests.rotation import of_today, on_its_day

ROOT = Path(__file__).parents[3]
#: Names of processors, and features that they lack beside this one's.
HOSTS: dict[str, tuple[str, ...]] = {
    "haswell": ("avx512f", "avx512vl", "clwb", "sha"),
    "znver4": (),
    "sapphirerapids": (),
}
#: Kernels whose code the width of registers shapes, and kernels whose loops LLVM turns into vectors: a quarter of both each day.
KERNELS = of_today(
    [
        "pe_cli.ops.math.matrix_product:products", "pe_cli.ops.math.activation_smooth:tanh_op",
        "pe_cli.kernels.cpu.gemm:gemm_bias", "pe_cli.ops.nn.softmax:softmax_back",
        "pe_cli.kernels.cpu.microkernels:microkernels", "pe_cli.ops.update.optimizer_moments:adamax_step",
        "pe_cli.ops.nn.lstm_unit:lstm_unit_forward",
    ],
    4,
)  # fmt: skip
CODE = """
import hashlib, sys
import llvmlite.binding as llvm
kernels, name, *lacking = sys.argv[1:]
real = dict(llvm.get_host_cpu_features())
llvm.get_host_cpu_name = lambda: name
from llvmlite.binding import targets
made = targets.FeatureMap({**real, **dict.fromkeys(lacking, False)})
llvm.get_host_cpu_features = targets.get_host_cpu_features = lambda: made
from pe_cli.kernels.compiler.compiler import compile_kernel
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.worker_processes import load
for kernel in kernels.split():
    for dtype in ("float32", "float64"):
        instance = Instance(load(kernel), dtype)
        print(kernel, dtype, instance.key, hashlib.sha256(compile_kernel(instance.kernel, dtype, "float32", "entry")).hexdigest())
"""
pytestmark = needs(target.runs_portable(), "a processor with AVX2 and FMA")


def compiled(host: str) -> str:
    # as in children that compile: numba goes through sets, whose order is another one in every process
    environment = os.environ | {"PE_VECTOR_TARGET": "portable", "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", CODE, " ".join(KERNELS), host, *HOSTS[host]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@on_its_day(0, of=3)
def test_code_is_the_same_on_every_processor():
    first, *others = (compiled(host) for host in HOSTS)
    assert len(first.splitlines()) == 2 * len(KERNELS)
    assert others == [first] * 2


@on_its_day(0, of=3)
def test_a_run_has_the_same_bits_whatever_numpy_finds(tmp_path):
    """NumPy chooses its own instructions; what it computes around the steps must not depend on them."""
    found = []
    for disabled in ("", "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"):
        into = tmp_path / str(len(found))
        environment = os.environ | {"NPY_DISABLE_CPU_FEATURES": disabled, "PYTHONWARNINGS": "ignore"}
        command = ["-m", "pe_cli", "train", "configs/digits.yaml", "-o", "train.epochs=2", "-o", "executor.devices=2", "--quiet"]
        done = subprocess.run(
            [sys.executable, *command, "-o", f"output.dir={into}", "-o", "executor.instructions=portable"],
            cwd=ROOT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder,) = into.iterdir()
        assert '"instructions": "portable (x86-64-v3, vectors of 256 bits)"' in (folder / "env.json").read_text()
        (arrays,) = (folder / "checkpoints" / "step-46").glob("*.safetensors")
        found.append(((folder / "metrics.jsonl").read_bytes(), arrays.read_bytes()))
    assert found[0] == found[1]


def test_a_process_has_one_kind(monkeypatch):
    monkeypatch.delenv(target.VARIABLE, raising=False)
    monkeypatch.setattr(target, "FORCED", False)
    target.cpu_name()
    with pytest.raises(PeError, match="this process has kernels for native ones") as caught:
        target.use("portable")
    assert caught.value.code == ExitCode.USAGE
    target.use("native")


def test_a_processor_without_its_instructions_is_told(monkeypatch):
    monkeypatch.delenv(target.VARIABLE, raising=False)
    monkeypatch.setattr(target, "FORCED", False)
    target.cpu_name.cache_clear()
    target.features.cache_clear()
    monkeypatch.setattr(target.llvm, "get_host_cpu_features", lambda: {"avx2": True})
    with pytest.raises(PeError, match="this processor lacks fma, bmi2, f16c") as caught:
        target.use("portable")
    assert caught.value.code == ExitCode.DEVICE


def test_a_unit_of_bfloat16_that_there_is_not_is_told(monkeypatch):
    monkeypatch.setenv("PE_BFLOAT16_UNIT", "tile")
    with pytest.raises(PeError, match="PE_BFLOAT16_UNIT is 'tile'") as caught:
        target.bfloat16_unit.__wrapped__()
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint.startswith("tiles, pairs or none")


def test_the_environment_chooses_against_a_config(monkeypatch):
    monkeypatch.setattr(target, "FORCED", True)
    target.use("portable")
    assert target.chosen() == os.environ.get(target.VARIABLE, "native")
