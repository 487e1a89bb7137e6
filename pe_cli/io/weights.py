"""Files of weights, of this project and of others: values by name, and what a file says of how they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import strict_json
from pe_cli.io.checkpoint import load_arrays
from pe_cli.io.checkpoint_meta import META
from pe_cli.io.onnx.initializers import read_graph
from pe_cli.io.regular_files import open_regular
from pe_cli.io.tensors import data_error, read_safetensors, written_by
from pe_cli.io.weight_layouts import LAYOUTS, Reading

#: How this project's own files have every weight: as its models do.
OWN: Reading = {"": ""}
#: What the library of safetensors writes for the framework that it was called from.
_FORMATS = {"pt": "torch", "flax": "flax", "paddle": "paddle"}
_INDEX, _MOST_INDEX = ".safetensors.index.json", 1 << 26
#: Files that only code can read, and the command that converts them where that code is.
_PICKLED = frozenset({".pth", ".pt", ".bin", ".ckpt", ".pkl", ".pickle", ".pdparams"})
_CONVERT = (
    "convert it where PyTorch is: python -c \"import sys, torch; from safetensors.torch import save_file; "
    "save_file({k: v.clone() for k, v in torch.load(sys.argv[1], weights_only=True).items()}, sys.argv[2], {'format': 'pt'})\" "
    "FILE weights.safetensors"
)


@dataclass(frozen=True)
class WeightFile:
    """What a file holds.

    Args:
        arrays: by name.
        own: whether a run of this project has left it, or `pe export`.
        graph: how the graph of an ONNX file reads each; nothing for one that no known node reads. None for other files.
        framework: that the file says it was written by.
    """

    arrays: Mapping[str, np.ndarray[Any, Any]]
    own: bool = False
    graph: Mapping[str, Reading] | None = None
    framework: str | None = None

    @property
    def layout_may_be_said(self) -> bool:
        """Whether somebody else has to say how the weights lie, or may say it otherwise."""
        return not self.own and self.graph is None

    def reading(self, name: str, layout: str | None) -> Reading | None:
        """Return how a weight lies; None where nothing says it.

        Args:
            name: in the file.
            layout: what the user says.
        """
        if self.graph is not None:
            return self.graph.get(name, {})
        if self.own or layout == "paddle":
            return OWN
        said = layout or self.framework
        return None if said is None else OWN if said == "paddle" else LAYOUTS[said]


def read_weights(path: Path) -> WeightFile:
    """Read a run, a checkpoint, a .safetensors file, the index of several, an .npz or .onnx file.

    Raises:
        PeError: DATA; the file is missing, damaged or of a kind that is not read.
    """
    if path.suffix == ".onnx":
        arrays, graph, own = read_graph(path)
        return WeightFile(arrays, own, graph)
    if path.name.endswith(_INDEX):
        return _sharded(path)
    if path.suffix in _PICKLED and path.is_file():
        raise data_error(f"{path}: a file of this kind is read by running what it says, which pe does not do", _CONVERT)
    arrays = load_arrays(path)
    if path.suffix != ".safetensors" or not path.is_file():
        return WeightFile(arrays, own=path.suffix != ".npz" or path.is_dir())
    said = written_by(path)
    return WeightFile(arrays, own=said == "pe" or (path.parent / META).is_file(), framework=_FORMATS.get(said))


def _sharded(path: Path) -> WeightFile:
    """Read the files that an index names, which lie beside it.

    Raises:
        PeError: DATA; the index or a file is damaged, a file lies elsewhere, or lacks what the index says.
    """
    try:
        with open_regular(path) as stream:
            text = stream.read(_MOST_INDEX + 1)
        if len(text) > _MOST_INDEX:
            raise data_error(f"{path}: more than {_MOST_INDEX} bytes, which no index has")
        index = strict_json.loads(text)
    except FileNotFoundError:
        raise data_error(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise data_error(f"{path}: not a whole index: {error}") from None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise data_error(f"{path}: no weight_map from names to files")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    frameworks = set()
    for file in dict.fromkeys(places.values()):
        if Path(file).name != file or not file.endswith(".safetensors"):
            raise data_error(f"{path}: '{file}' is no .safetensors file beside it", "copy all files of the model into one folder")
        found = read_safetensors(path.with_name(file))
        frameworks.add(written_by(path.with_name(file)))
        for name in (name for name, place in places.items() if place == file):
            if name not in found:
                raise data_error(f"{path}: '{name}' is not in {file}", "copy all files of the model again")
            arrays[name] = found[name]
    return WeightFile(arrays, framework=_FORMATS.get(frameworks.pop()) if len(frameworks) == 1 else None)
