"""Reads a folder as transformers writes it into a model with values."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.io import strict_json
from pe_cli.io.weight_layouts import Reading
from pe_cli.io.weights import WeightFile, read_weights
from pe_cli.session.importing.define import ImportedModel, ImportWish
from pe_cli.session.importing.hugging_face.config_values import CONFIG, ConfigValues, bad, read_config, shown
from pe_cli.session.importing.hugging_face.example import example
from pe_cli.session.importing.hugging_face.family import Family, Head, architectures, endings, families, filled
from pe_cli.session.importing.hugging_face.stages import by_rows
from pe_cli.session.importing.hugging_face.tensor_names import COUNTER, Taken, TensorNames
from pe_cli.session.importing.write import model_text
from pe_cli.session.training.initial_values import readings

#: Files with the tensors, the first that is there is read; the last ones only to say why they are not.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
#: What the parameters are called there, for an export that goes back.
TENSORS = "tensors.json"
#: What sentence-transformers says of the vector of a text.
POOLING = Path("1_Pooling") / CONFIG


def read(wish: ImportWish) -> ImportedModel:
    """Read a folder.

    Raises:
        PeError: DATA; a file is missing or damaged, no family is declared for it, or its tensors are not those of its `config.json`.
            USAGE; the family has no such head, or a wish cannot be met.
    """
    folder = wish.source
    config = _of_architecture(read_config(folder), folder)
    family = _family(config, folder)
    said = [str(each) for each in _list(config.get("architectures"))]
    own = next((name for name, head in family.heads.items() if set(said) & set(head.architectures)), None)
    name = wish.head or own or next(iter(family.heads))
    if name not in family.heads:
        raise PeError(f"--head {name}: {family.name} has no such head", hint=did_you_mean(name, list(family.heads)) or _known_heads(family))
    values = ConfigValues(family, config, folder / CONFIG)
    found = {**values.all(wish.length, wish.classes), "mean_pooling": _mean_pooling(folder)}
    model = _model(family, family.heads[name], found, folder)
    types, ours = _parameters(model, folder)
    tensors = _weights(folder).arrays
    family = dataclasses.replace(family, modules={**by_rows(family.row_modules, found.get("rows", ())), **family.modules})
    fresh = family.heads[name].last if found["classes"] != values.classes() else ()
    names = TensorNames(family, name, fresh, may_be_new=name != own)
    taken = names.take(tensors, types, ours, str(folder))
    files, said_of_files = example(family, name, found, values.labels() if not fresh else (), folder, types)
    notes = [f"family {family.name}, head '{name}'", said_of_files, *_unused(family, config), *_notes(taken)]
    details = [f"taken: {theirs} -> {ours} {list(taken.arrays[ours].shape)}" for ours, theirs in taken.sources.items()]
    theirs = strict_json.dumps(names.theirs(taken, tensors, types)).encode()
    return dataclasses.replace(model, arrays=taken.arrays, notes=notes, details=details, files={**files, TENSORS: theirs})


def _mean_pooling(folder: Path) -> bool:
    """Tell whether a text's vector is the mean of those of its tokens, or that of the first; sentence-transformers says which."""
    return not (folder / POOLING).is_file() or not read_config(folder / POOLING.parent).get("pooling_mode_cls_token", False)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _of_architecture(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the config that stands for one of timm, which names the network by its `architecture`; any other one as it is.

    Raises:
        PeError: DATA; no network of this name is declared.
    """
    name = config.get("architecture")
    if "model_type" in config or not isinstance(name, str):
        return config
    known = architectures()
    short = name.partition(".")[0]
    if short not in known:
        text = f"{folder / CONFIG}: architecture is {shown(name)}, and no such network is declared"
        raise bad(text, did_you_mean(short, list(known)) or f"known are {', '.join(known)}")
    facts = config.get("pretrained_cfg")
    sizes = facts.get("input_size") if isinstance(facts, dict) else None
    channels, _, side = sizes if isinstance(sizes, list) and len(sizes) == 3 else (None, None, None)
    given = {"num_labels": config.get("num_classes"), "num_channels": channels, "image_size": side}
    entry = dict(known[short])
    # Networks of one name may differ between timm and torchvision in what no tensor shows.
    other = entry.pop("torchvision", {})
    if other and any(tensor.startswith("features.") for tensor in _weights(folder).arrays):
        entry |= other
    return {**entry, **{key: value for key, value in given.items() if value is not None}}


def _family(config: Mapping[str, Any], folder: Path) -> Family:
    kind = config.get("model_type")
    known = list(dict.fromkeys(each for family in families() for each in family.model_types))
    if not isinstance(kind, str):
        raise bad(f"{folder / CONFIG}: model_type is {shown(kind)}, and not the name of a family", f"known are {', '.join(known)}")
    if kind not in known:
        text = f"{folder / CONFIG}: no family '{shown(kind)[1:-1]}' is declared"
        raise bad(text, did_you_mean(kind, known) or f"known are {', '.join(known)}")
    among = [family for family in families() if kind in family.model_types]
    found = next((one for one in among if all(config.get(key) in values for key, values in one.where.items())), None)
    if found is None:
        said = {key: [v for one in among for v in one.where.get(key, ()) if v is not None] for one in among for key in one.where}
        wrong = next(key for key in said if config.get(key) not in said[key])
        text = f"{folder / CONFIG}: {wrong} is {shown(config.get(wrong))}"
        raise bad(text, f"layers are there for {' and '.join(map(shown, said[wrong]))}")
    return found


def _known_heads(family: Family) -> str:
    return f"it has {', '.join(family.heads)}"


def _model(family: Family, head: Head, values: Mapping[str, Any], folder: Path) -> ImportedModel:
    """Return the model that a config asks for, without values."""
    ending = filled(head.ending, values)
    end = endings()[ending] if ending else {"feeds": {}, "layers": {}, "fetches": []}
    args = filled({**family.args, **head.args}, values)
    layers = filled({**family.layers, **head.layers, **end["layers"]}, values)
    feeds = filled({**family.feeds, **end["feeds"]}, values)
    blocks = {name: {**block, "layers": filled(block["layers"], values)} for name, block in family.blocks.items()}
    comments = {name: text for name, text in family.comments.items() if name in layers or "/" in name}
    fetches = [*end["fetches"], *head.fetches]
    return ImportedModel(family.name, feeds, layers, fetches, {}, args, blocks, comments, source=str(folder))


def _parameters(model: ImportedModel, folder: Path) -> tuple[dict[str, TensorType], dict[str, Reading]]:
    """Return the types of a model's parameters and statistics, and how it reads each.

    Raises:
        PeError: DATA; the layers do not take the sizes of `config.json`.
    """
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.yaml"
        file.write_text(model_text(model), encoding="utf-8")
        try:
            built = build(load_model(file))
        except PeError as error:
            raise bad(f"{folder / CONFIG}: its sizes make no model: {error.message}", "copy the folder again") from None
    types = {v.name: v.type for v in built.eval.list_vars() if v.persistable}
    return types, readings(built.eval, list(types))


def _weights(folder: Path) -> WeightFile:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise bad(f"{folder} has no {WEIGHTS[0]} and no {WEIGHTS[1]}", "save_pretrained() writes them")
    try:
        return read_weights(file)
    except PeError as error:
        error.hint = error.hint or "copy the model's files again"
        raise


def _notes(taken: Taken) -> list[str]:
    """Return what is new, tied and left."""
    counted = sum(why == COUNTER for why in taken.left.values())
    new = [f"not in the folder, begins at random: {', '.join(taken.new)}"] if taken.new else []
    left = [f"left out: {name}: {why}" for name, why in taken.left.items() if why != COUNTER]
    left += [f"left out: {counted} counters of batch norm, which nothing reads"] if counted else []
    return [*new, *(f"tied: {taken.sources[ours]} and {name} are {ours}" for name, ours in taken.tied.items()), *left]


def _unused(family: Family, config: Mapping[str, Any]) -> list[str]:
    return [f"{key} is {shown(config[key])} there, and not used: {why}" for key, why in family.unused.items() if config.get(key)]
