"""Names of PaddlePaddle that are refused, each with the reason and a replacement.

One table serves the errors and docs/coverage.md. A name that ends with `.*` stands for everything in a module.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.refused_v2_names import refusals


@dataclass(frozen=True)
class Refusal:
    """Why a name is not there.

    Args:
        why: a sentence without its end.
        use: what to do instead.
    """

    why: str
    use: str


DYNAMIC = Refusal(
    "graphs are static here, there is no dynamic mode", "build the network once, by fluid.layers or paddle.nn, and run it by an Executor"
)
_PROCESSES = Refusal(
    "processes are started by MPI, and a config or num_trainers says what they share",
    "mpiexec -n 4 pe train: docs/how-to/processes.md, or ParallelExecutor(num_trainers=4): docs/how-to/fluid.md",
)
_HALF = Refusal("programs run in the element types that they are written in", "executor.precision: bf16 of a run file, for pe train")
_FEWER_BITS = Refusal("there are no kernels for fewer bits, and no pass that prunes", "pe export writes ONNX, which other tools quantise")
_ROLES = Refusal("a role is said by arguments, or by the environment", "role_maker.UserDefinedRoleMaker or PaddleCloudRoleMaker")
_XPU = Refusal("there is no device of this kind", "CPUPlace(), or CUDAPlace(0) where a GPU is")
_COMPLEX = Refusal("no element type is complex", "two real variables, or paddle.stack of both")
_READING = Refusal("readers are Python functions here", "fluid.io.DataLoader.from_generator, or data.source of a config")

#: Of names that the original has and nobody has taken over.
UNTAKEN = Refusal("it is no name that the reference explains", "what docs/coverage.md lists, or leave it out")
_DEVICES_OF_OTHERS = Refusal("kernels are the core's own", "CPUPlace(), or CUDAPlace(0) where a GPU is")
_TRAINERS = Refusal("there are no trainers in other processes", "Executor.train_from_dataset")
_PROTOBUF = Refusal("programs are text and JSON", "print(program), or Program.parse_from_string(program.to_string(True, True))")
_LOCAL = Refusal("nothing is downloaded: data sets are read from local files", "docs/how-to/fluid.md says which files, and where")

#: Path, as scripts write it -> why it is refused.
REFUSED: dict[str, Refusal] = {
    "paddle.DataParallel": Refusal(
        "it belongs to the dynamic mode", "CompiledProgram(program).with_data_parallel(loss_name=loss.name), or executor.places of a config"
    ),
    "paddle.nn.SyncBatchNorm": Refusal(
        "a strategy says it of all layers", "nn.BatchNorm2D with BuildStrategy.sync_batch_norm = True, or build_strategy of a config"
    ),
    "paddle.conj": _COMPLEX,
    "paddle.imag": _COMPLEX,
    "paddle.real": _COMPLEX,
    "paddle.XPUPlace": _XPU,
    "fluid.XPUPlace": _XPU,
    "paddle.jit.*": DYNAMIC,
    "paddle.to_variable": DYNAMIC,
    "fluid.dygraph.*": DYNAMIC,
    "fluid.imperative.*": DYNAMIC,
    "fluid.dygraph_guard": DYNAMIC,
    "fluid.enable_dygraph": DYNAMIC,
    "fluid.enable_imperative": DYNAMIC,
    "fluid.load_dygraph": Refusal("it reads what the dynamic mode saved", "fluid.load or fluid.load_program_state"),
    "fluid.save_dygraph": Refusal("it saves what the dynamic mode made", "fluid.save(program, path)"),
    "fluid.load_op_library": Refusal(
        "an op here is a Python file that compiles for every device, no library", "docs/adding-an-op.md, or fluid.layers.py_func"
    ),
    "fluid.optimizer.DGCMomentumOptimizer": Refusal(
        "gradients are summed whole, as devices of one machine share memory", "fluid.optimizer.Momentum: the same steps without a threshold"
    ),
    "fluid.optimizer.PipelineOptimizer": Refusal(
        "a program is not cut over devices, each device has all of it", "CompiledProgram.with_data_parallel, for shares of a batch"
    ),
    "fluid.contrib.*": Refusal("not all that is on trial in the original is taken over", "docs/how-to/fluid.md lists what is there"),
    "fluid.contrib.mixed_precision": _HALF,
    "fluid.contrib.slim": _FEWER_BITS,
    "fluid.contrib.quantize": _FEWER_BITS,
    "fluid.contrib.QuantizeTranspiler": _FEWER_BITS,
    "fluid.contrib.Compressor": _FEWER_BITS,
    "fluid.contrib.HDFSClient": Refusal("files lie where the machine can open them", "copy them, or mount the file system"),
    "fluid.incubate.fleet.collective.*": _PROCESSES,
    "fluid.incubate.fleet.base.role_maker.UserDefinedCollectiveRoleMaker": _PROCESSES,
    "fluid.incubate.fleet.base.role_maker.GeneralRoleMaker": _ROLES,
    "fluid.incubate.fleet.base.role_maker.MPISymetricRoleMaker": _ROLES,
    "paddle.incubate.*": _PROCESSES,
    "paddle.distributed.*": _PROCESSES,
    "paddle.amp.*": _HALF,
    "paddle.onnx.*": Refusal("runs are exported, no programs", "pe export RUN; see docs/how-to/export.md"),
    "paddle.inference.*": Refusal(
        "inference models run in the ordinary executor", "fluid.io.load_inference_model and Executor.run, or pe predict"
    ),
    "fluid.layers.open_files": _READING,
    "fluid.layers.open_recordio_file": _READING,
    "fluid.layers.random_data_generator": _READING,
    "fluid.layers.shuffle": Refusal("readers are Python functions here", "fluid.io.shuffle(reader, buf_size)"),
    "fluid.layers.batch": Refusal("readers are Python functions here", "fluid.io.batch(reader, batch_size)"),
    "fluid.debugger.*": Refusal("pictures are drawn by a command", "pe graph CONFIG --svg; print(program) shows a program as text"),
    "fluid.net_drawer.*": Refusal("pictures are drawn by a command", "pe graph CONFIG --svg"),
    "fluid.trainer_desc.*": _TRAINERS,
    "fluid.trainer_factory.*": _TRAINERS,
    "fluid.device_worker.*": _TRAINERS,
    "fluid.default_scope_funcs.*": Refusal("scopes are values", "fluid.global_scope() and fluid.scope_guard(scope)"),
    "fluid.distributed.*": Refusal("its servers are another program", "fluid.DistributeTranspiler, or docs/how-to/parameter-server.md"),
    "fluid.proto.*": _PROTOBUF,
    "fluid.graphviz.*": Refusal("pictures are drawn by a command", "pe graph CONFIG --svg"),
    "fluid.dygraph_utils.*": DYNAMIC,
    "fluid.multiprocess_utils.*": Refusal("readers run in threads", "fluid.io.multiprocess_reader, or DataLoader.from_generator"),
    "fluid.core.VarBase": DYNAMIC,
    "fluid.framework.ParamBase": DYNAMIC,
    "fluid.framework.IrGraph": _FEWER_BITS,
    "fluid.framework.load_op_library": Refusal(
        "an op here is a Python file that compiles for every device, no library", "docs/adding-an-op.md, or fluid.layers.py_func"
    ),
    "fluid.core.ops": DYNAMIC,
    "paddle.complex.*": _COMPLEX,
    "paddle.utils.*": Refusal("it belongs to the generation before fluid", "NumPy, or paddle.vision.transforms for pictures"),
    "paddle.dataset.*": _LOCAL,
    "paddle.dataset.flowers.*": Refusal("its readers cut pictures by OpenCV", "paddle.vision.datasets.Flowers and transforms"),
    "paddle.dataset.mq2007.*": Refusal("its archive needs a program that unpacks RAR", "unpack it, and read its text by a function"),
    "paddle.dataset.sentiment.*": Refusal("its texts are unpacked by the package nltk", "paddle.text.Imdb, or nltk itself"),
    "paddle.sysconfig.*": Refusal(
        "there is no library with headers to compile against", "docs/adding-an-op.md: an op is a Python file that compiles for every device"
    ),
    **{
        f"paddle.callbacks.{name}": Refusal(f"it is for {what}", "define on_train_batch_end of a class of paddle.callbacks.Callback")
        for name, what in (("VisualDL", "a package that is not there"), ("WandbCallback", "a service"))
    },
}
REFUSED.update(refusals(Refusal))

#: What the original's index holds that is no name of a program -> what it stands for.
NO_NAMES = {
    "Overview": "title of a page of the index",
    "RandomHorizontalFli": "cut off in the index; `RandomHorizontalFlip` is there",
}


def find(module: str, name: str) -> Refusal | None:
    """Return the refusal of a name of a module, None where it is not refused."""
    parts = f"{module}.{name}".split(".")
    paths = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    kinds = (kind for path in paths for kind in (path, f"{path.rpartition('.')[0]}.*"))
    return next((REFUSED[kind] for kind in kinds if kind in REFUSED), None)


class Refused:
    """Stands for a name that is refused: it can be imported, and whoever uses it is told what to use instead.

    Args:
        path: as scripts write it.
        refusal: why.
    """

    def __init__(self, path: str, refusal: Refusal) -> None:
        self._path, self._refusal = path, refusal

    def _refuse(self) -> NoReturn:
        raise NotThereYet(f"{self._path} is not there: {self._refusal.why}", hint=self._refusal.use)

    def __call__(self, *args: Any, **given: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: Any) -> NoReturn:
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *error: object) -> None:
        """Never reached."""

    def __getattr__(self, name: str) -> Refused:
        if name.startswith("_"):
            raise AttributeError(name)
        return Refused(f"{self._path}.{name}", self._refusal)

    def __repr__(self) -> str:
        return f"<{self._path}: {self._refusal.why}>"
