"""Names around programs: bytes of programs, devices, refused names, paths of modules, data sets from files."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import pickle
import struct
import tarfile

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle import dataset_files, static
from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.fluid.places import _CHOSEN
from pe_cli.paddle.refused_names import REFUSED, Refused
from pe_cli.paddle.static import InputSpec
from pe_cli.paddle.vision import datasets
from pe_cli.program.serialize import to_dict
from tests.paddle.support import regression, rows, trained

# --- programs as bytes ------------------------------------------------------------------------------------------------


def test_a_program_and_its_values_come_back_from_bytes(tmp_path):
    loss, executor = trained()
    x = fluid.default_main_program().global_block().var("X")
    block = fluid.default_main_program().global_block()
    guess = block.var(next(op.inputs["X"][0] for op in block.ops if loss.name in op.output_names()))
    expected = executor.run(static.normalize_program(fluid.default_main_program(), x, guess), {"X": rows(3)}, [guess.name])[0]
    program = static.serialize_program([x], [guess])
    values = static.serialize_persistables([x], [guess], executor)
    static.save_to_file(tmp_path / "folder" / "values", values)
    with fluid.scope_guard(fluid.Scope()):
        found = static.deserialize_program(program)
        assert "mean" not in [op.type for op in found.global_block().ops]
        static.deserialize_persistables(found, static.load_from_file(tmp_path / "folder" / "values"), executor)
        np.testing.assert_array_equal(executor.run(found, {"X": rows(3)}, [guess.name])[0], expected)


def test_bytes_that_are_no_program(tmp_path):
    with pytest.raises(ValueError, match="no program"):
        static.deserialize_program(b"{}")
    loss = regression()
    with pytest.raises(ValueError, match="needs X"):
        static.normalize_program(fluid.default_main_program(), loss, loss)
    with pytest.raises(TypeError, match="takes bytes"):
        static.save_to_file(tmp_path / "file", "text")
    with pytest.raises(ValueError, match="cannot be read"):
        static.load_from_file(tmp_path / "file")
    with pytest.raises(TypeError, match="takes a Program"):
        static.normalize_program("main", loss, loss)


def test_a_program_whose_gradients_are_not_those_of_its_ops(tmp_path):
    """What comes as bytes is looked at as a file is: kernels of gradients trust that they have the types of their ops."""
    trained()
    found = to_dict(fluid.default_main_program())
    assert static.deserialize_program(json.dumps(found).encode()).global_block().ops
    (gradient,) = [op for op in found["blocks"][0]["ops"] if op["type"] == "mul_grad"]
    gradient["inputs"]["X"], gradient["inputs"]["Y"] = gradient["inputs"]["Y"], gradient["inputs"]["X"]
    with pytest.raises(ValueError, match=r"the bytes are no program: error: op 'mul_grad' reads 'fc_0.w_0' as X, but its mul has 'X'"):
        static.deserialize_program(json.dumps(found).encode())


def test_descriptions_of_feeds():
    spec = InputSpec([None, 3], "int64", "x")
    assert spec == InputSpec([-1, 3], "int64", "x")
    assert InputSpec.from_numpy(np.zeros((2, 3), "float32")).batch(8).shape == (8, 2, 3)
    assert spec.unbatch().shape == (3,)
    assert InputSpec.from_tensor(fluid.data("y", [-1, 2])) == InputSpec([-1, 2], "float32", "y")


# --- devices, values, gradients -------------------------------------------------------------------------------------------


@pytest.fixture
def chosen():
    yield
    _CHOSEN.clear()


@pytest.mark.usefixtures("chosen")
def test_the_device_that_is_set_is_that_of_executors():
    assert paddle.set_device("cpu") == fluid.CPUPlace()
    assert paddle.get_device() == "cpu"
    assert fluid.Executor().place == fluid.CPUPlace()
    for device in ("xpu:0", "gpu:x", "cpu:1"):
        with pytest.raises(ValueError, match="there are no other devices"):
            paddle.set_device(device)
    assert not paddle.is_compiled_with_xpu()
    assert paddle.get_cudnn_version() is None


def test_states_of_generators():
    paddle.set_cuda_rng_state(paddle.get_cuda_rng_state())
    with pytest.raises(ValueError, match=r"paddle\.seed"):
        paddle.set_cuda_rng_state([1])


def test_no_gradient_flows_through_what_is_computed_inside():
    x = fluid.data("x", [2])
    x.stop_gradient = False
    with paddle.no_grad():
        constant = x * 3.0
    (found,) = paddle.grad(fluid.layers.reduce_sum(x * constant), x)
    assert fluid.Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[found])[0].tolist() == [3.0, 6.0]


def test_grad_says_what_does_not_depend():
    x, y = fluid.data("x", [2]), fluid.data("y", [2])
    x.stop_gradient = y.stop_gradient = False
    with pytest.raises(ValueError, match="do not depend on y"):
        paddle.grad(x * 2.0, [x, y])
    assert paddle.grad(x * 2.0, [x, y], allow_unused=True)[1] is None
    with pytest.raises(NotThereYet, match="create_graph"):
        paddle.grad(x * 2.0, x, create_graph=True)


def test_values_become_variables():
    made = [paddle.to_tensor([1.5, 2]), paddle.to_tensor(np.int64([[3]])), paddle.to_tensor(4, "float64")]
    found = fluid.Executor().run(fetch_list=[*made, paddle.to_tensor(made[0])])
    assert [(v.dtype.name, v.tolist()) for v in found] == [
        ("float32", [1.5, 2.0]), ("int64", [[3]]), ("float64", found[2].tolist()), ("float32", [1.5, 2.0]),
    ]  # fmt: skip
    assert np.ravel(found[2]).tolist() == [4.0]
    with pytest.raises(TypeError, match="elements of type"):
        paddle.to_tensor(["a"])


def test_the_check_of_an_installation(capsys):
    fluid.install_check.run_check()
    assert capsys.readouterr().out.count("pe works on") >= 1


def test_a_weighted_average():
    mean = fluid.average.WeightedAverage()
    mean.add(2.0, 1)
    mean.add(4.0, 3)
    assert mean.eval() == 3.5
    mean.reset()
    with pytest.raises(ValueError, match="no data"):
        mean.eval()


def test_texts_and_bytes():
    given = [b"a", {b"b": "c"}, 1]
    assert paddle.compat.to_text(given) == ["a", {"b": "c"}, 1]
    assert paddle.compat.to_bytes(paddle.compat.to_text(given, inplace=True)) == [b"a", {b"b": b"c"}, 1]
    assert [paddle.compat.round(v) for v in (0.5, 1.5, -0.5, 0.0)] == [1.0, 2.0, -1.0, 0.0]


# --- refused names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_a_refused_name_can_be_imported_and_says_what_to_use(path):
    module, _, name = path.removesuffix(".*").rpartition(".")
    base = importlib.import_module(f"pe_cli.paddle.{module}" if module.startswith("fluid") else f"pe_cli.{module}")
    found = getattr(base, name)
    if path.endswith(".*"):
        found = found.anything
    if not isinstance(found, Refused):
        found = found.anything  # a module
    for use in (found, found.part, found.__enter__, lambda: found.__mro_entries__(())):
        with pytest.raises(NotThereYet, match=r"is not there: .* \(hint: "):
            use()


@pytest.mark.parametrize(
    "path",
    [
        "fluid.layers.nn.fc", "fluid.layers.tensor.fill_constant", "fluid.layers.control_flow.While", "fluid.layers.loss.cross_entropy",
        "fluid.layers.sequence_lod.sequence_pool", "fluid.layers.metric_op.accuracy", "fluid.layers.ops.exp",
        "fluid.layers.learning_rate_scheduler.noam_decay", "fluid.layers.detection.prior_box", "fluid.incubate.fleet.collective.fleet",
        "fluid.contrib.mixed_precision.decorate", "fluid.dygraph.Layer", "fluid.compiler.CompiledProgram", "fluid.average.WeightedAverage",
        "metric.Accuracy", "dataset.mnist.train", "reader.shuffle", "vision.transforms.Resize", "distributed.init_parallel_env",
    ],
)  # fmt: skip
def test_modules_are_where_the_original_has_them(path):
    module, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(f"pe_cli.paddle.{module}"), name) is not None


def test_modules_of_the_original_do_not_hide_unknown_names():
    with pytest.raises(AttributeError, match="no 'fcc'"):
        _ = importlib.import_module("pe_cli.paddle.fluid.layers.nn").fcc
    assert fluid.dygraph.enabled() is False


# --- data sets --------------------------------------------------------------------------------------------------------


def idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def test_digits_from_files(tmp_path, monkeypatch):
    pictures, labels = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 251, np.array([7, 1])
    idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", pictures)
    idx(tmp_path / "mnist" / "train-labels-idx1-ubyte.gz", labels)
    monkeypatch.setattr(dataset_files, "HOME", str(tmp_path))
    data = datasets.MNIST(transform=paddle.vision.transforms.ToTensor())
    assert len(data) == 2
    np.testing.assert_allclose(data[1][0][0], pictures[1] / 255, rtol=1e-6)
    assert data[0][1].tolist() == [7]
    picture, label = next(paddle.dataset.mnist.train()())
    np.testing.assert_allclose(picture, pictures[0].ravel() / 127.5 - 1, rtol=1e-5, atol=1e-6)
    assert label == 7
    with pytest.raises(ValueError, match="nothing is downloaded"):
        datasets.MNIST(mode="test")
    with pytest.raises(ValueError, match="train or test"):
        datasets.MNIST(mode="eval")


def archive(path, parts):
    with tarfile.open(path, "w:gz") as made:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))


def test_pictures_from_an_archive_and_no_code_of_it(tmp_path):
    rows_ = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
    part = pickle.dumps({b"data": rows_, b"labels": [3, 4]}, protocol=2)
    archive(tmp_path / "cifar.tar.gz", {"c/data_batch_1": part, "c/data_batch_2": part, "c/test_batch": part})
    data = datasets.Cifar10(tmp_path / "cifar.tar.gz")
    assert len(data) == 4
    np.testing.assert_array_equal(data[1][0], rows_[1].reshape(3, 32, 32).transpose(1, 2, 0))
    assert data[3][1].tolist() == [4]
    archive(tmp_path / "evil.tar.gz", {"c/test_batch": pickle.dumps({b"data": print})})
    with pytest.raises(ValueError, match="would call"):
        datasets.Cifar10(tmp_path / "evil.tar.gz", "test")


def test_houses_and_folders(tmp_path):
    table = np.random.default_rng(0).random((10, 14))
    np.savetxt(tmp_path / "housing.data", table)
    data = paddle.text.UCIHousing(tmp_path / "housing.data")
    features = table[:, :13]
    expected = (features - features.mean(axis=0)) / np.ptp(features, axis=0)
    assert len(data) == 8
    np.testing.assert_allclose(data[2][0], expected[2], atol=1e-5)
    np.testing.assert_allclose(paddle.text.UCIHousing(tmp_path / "housing.data", "test")[1][1], table[9, 13:], atol=1e-6)
    for name in ("cats/b.png", "cats/a.png", "dogs/c.png", "dogs/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = datasets.DatasetFolder(tmp_path, loader=lambda path: path[-5:])
    assert [found[i] for i in range(len(found))] == [("a.png", 0), ("b.png", 0), ("c.png", 1)]
    assert len(datasets.ImageFolder(tmp_path, loader=str, extensions=[".TXT"])) == 1
    with pytest.raises(ValueError, match="has no such file"):
        datasets.ImageFolder(tmp_path / "cats", extensions=[".gif"])


def test_layers_that_the_original_generates_are_in_the_modules_that_have_them():
    layers = fluid.layers
    for path, name in (("ops", "floor"), ("ops", "sqrt"), ("nn", "exp"), ("loss", "square")):
        assert getattr(importlib.import_module(f"pe_cli.paddle.fluid.layers.{path}"), name) is getattr(layers, name)
