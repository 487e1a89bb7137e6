"""Values of a `config.json`: what a family needs of it, checked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.json_size import count
from pe_cli.io import strict_json
from pe_cli.io.regular_files import open_regular
from pe_cli.session.importing.hugging_face.family import Family
from pe_cli.session.importing.hugging_face.stages import MOST_ROWS, listed_rows, rows

CONFIG = "config.json"
#: Bytes, values and depth of a config.json, at most.
_MOST_BYTES, _MOST_VALUES, _MOST_DEPTH = 1 << 22, 200_000, 64
#: A size, and a number of layers or heads, at most.
_MOST_SIZE, _MOST_COUNT = 1 << 24, 1000
#: Tokens that a model sees where nothing says it.
LENGTH = 128
#: What transformers calls an activation -> layer.
ACTIVATIONS: dict[str, Mapping[str, Any]] = {
    "gelu": {"type": "gelu"},
    "gelu_python": {"type": "gelu"},
    "gelu_new": {"type": "gelu", "approximate": True},
    "gelu_pytorch_tanh": {"type": "gelu", "approximate": True},
    "gelu_fast": {"type": "gelu", "approximate": True},
    "relu": {"type": "relu"},
    "relu6": {"type": "relu6"},
    "silu": {"type": "swish"},
    "swish": {"type": "swish"},
    "tanh": {"type": "tanh"},
    "sigmoid": {"type": "sigmoid"},
}


def read_config(folder: Path) -> dict[str, Any]:
    """Read a folder's `config.json`.

    Raises:
        PeError: DATA; it is missing, no JSON object, or larger or deeper than any.
    """
    file = folder / CONFIG
    try:
        with open_regular(file) as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES:,} bytes")
        counted = count(text)
        if counted.values > _MOST_VALUES or counted.depth > _MOST_DEPTH:
            raise ValueError(f"more than {_MOST_VALUES:,} values, or more than {_MOST_DEPTH} objects in one another")
        found = strict_json.loads(text)
    except FileNotFoundError:
        raise bad(f"{folder} has no {CONFIG}", "name a folder that save_pretrained() has written") from None
    except OSError as error:
        raise bad(f"{file}: {(error.strerror or str(error)).lower()}", "check the path and its permissions") from None
    except ValueError as error:
        raise bad(f"{file} is not whole: {error}", "copy the model's files again") from None
    if not isinstance(found, dict):
        raise bad(f"{file} holds a {type(found).__name__}, and not an object", "copy the model's files again")
    return found


def bad(message: str, hint: str) -> PeError:
    """Return an error about a folder; its exit code is DATA."""
    return PeError(message, hint=hint, code=ExitCode.DATA)


def shown(value: Any) -> str:
    """Return a value of JSON in a line of a message."""
    text = "".join(c if c.isprintable() else " " for c in strict_json.dumps(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


class ConfigValues:
    """Values by the names of a family.

    Args:
        family: that reads them.
        config: what `config.json` says.
        where: its path, for errors.
    """

    def __init__(self, family: Family, config: Mapping[str, Any], where: Path) -> None:
        self._config, self._where, self._family = config, where, family

    def all(self, length: int | None, classes: int | None) -> dict[str, Any]:
        """Return name -> value, with `length`, `classes` and `ending`.

        Args:
            length: tokens that are wanted; None for as many as usual.
            classes: that are wanted; None for those that the file names.

        Raises:
            PeError: DATA; a value is missing, of another kind, or none that the family's layers are right for. USAGE; a wish cannot be met.
        """
        self._check_must()
        found = {name: self._one(name, said) for name, said in self._family.values.items()}
        found["classes"] = classes if classes is not None else self.classes()
        found["ending"] = "classes" if classes is not None else self._ending(found["classes"])
        if self._family.length:
            most = found[self._family.length] - found.get("first_position", 0)
            if length is not None and length > most:
                raise PeError(f"--length {length}: the model has {most} positions", hint=f"--length {most} or less")
            found["length"] = length if length is not None else min(most, LENGTH)
            if found["length"] < 1:
                raise self._wrong(self._family.values[self._family.length]["key"], f"leaves {most} positions")
        return found

    def classes(self) -> int:
        """Return the number of classes: of `id2label`, or `num_labels`; 2 where neither says it.

        Raises:
            PeError: DATA; they say nothing that can be.
        """
        named, number = self._config.get("id2label"), self._config.get("num_labels")
        if isinstance(named, dict) and named:
            number = len(named)
        if number is None:
            return 2
        return _whole(number, 1, _MOST_SIZE, lambda why: self._wrong("num_labels", why))

    def labels(self) -> list[str]:
        """Return the names of the classes in order; none where they have only numbers."""
        named = self._config.get("id2label")
        if not isinstance(named, dict):
            return []
        found = [named.get(str(i)) for i in range(len(named))]
        if not all(isinstance(name, str) for name in found) or all(name == f"LABEL_{i}" for i, name in enumerate(found)):
            return []
        return [str(name) for name in found]

    def _ending(self, classes: int) -> str:
        kind = self._config.get("problem_type")
        if kind == "regression" or (kind is None and classes == 1):
            return "number"
        return "labels" if kind == "multi_label_classification" else "classes"

    def _check_must(self) -> None:
        for key, allowed in self._family.must.items():
            value = self._said(key)
            if value is not None and value not in allowed:
                one = [shown(each) for each in allowed if each is not None]
                raise self._wrong(key, f"is {shown(value)}, and layers are there for {' or '.join(one) or 'models without it'}")

    def _said(self, key: str) -> Any:
        """Return what the file says of a key, or of one in another one: `outer.inner`; None where it says nothing."""
        outer, _, inner = key.partition(".")
        value = self._config.get(outer)
        return value.get(inner) if inner and isinstance(value, dict) else None if inner else value

    def _one(self, name: str, said: Mapping[str, Any]) -> Any:
        kind, key = said.get("is", "size"), said["key"]
        for form, make in self._forms().items():
            if form in said:
                return make(said)
        keys = key if isinstance(key, list) else [key]
        value = next((found for each in keys if (found := self._said(each)) is not None), None)
        if not any(self._said(other) in kinds for other, kinds in said.get("where", {keys[0]: [self._said(keys[0])]}).items()):
            value = None  # it is of another kind, for which it says nothing
        if value is None:
            if "default" not in said:
                raise self._wrong(keys[0], "is missing")
            value = said["default"]
            if isinstance(value, str) and value.startswith("="):
                value = self._derived(value[1:], key)
        made = self._kinds()[kind](keys[0], value)
        if "item" in said:
            if len(made) != said["of"]:
                raise self._wrong(keys[0], f"has {len(made)} items, and layers are there for {said['of']}")
            made, kind = made[said["item"]] // said.get("divide", 1), "size"
        return made * said.get("times", 1) + said.get("plus", 0) if isinstance(made, int) and kind in ("size", "id", "count") else made

    def _forms(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """Return how values are made of others: key that says so -> function of what the family says."""
        return {
            "grid": self._grid,
            "product": lambda said: math.prod(map(self._named, said["product"])),
            "sum": lambda said: sum(map(self._named, said["sum"])),
            "root": lambda said: math.sqrt(self._named(said["root"])),
            "negative": lambda said: -self._named(said["negative"]),
            "differs": lambda said: self._named(said["differs"][0]) != said["differs"][1],
            "less": lambda said: self._named(said["less"][0]) < self._named(said["less"][1]),
            "part": self._part,
            "equal": lambda said: len(set(map(self._named, said["equal"]))) == 1,
            "at_least": lambda said: max(said["at_least"], self._named(said["of"])),
            "scaled": self._scaled,
            "one_minus": lambda said: round(1.0 - self._named(said["one_minus"]), 12),
            "stages": self._stages,
            "listed": self._listed,
        }

    def _part(self, said: Mapping[str, Any]) -> int:
        """Return an even part of a number."""
        made = int(self._named(said["part"]) * self._named(said["by"]))
        if made < 2 or made % 2:
            raise self._wrong(said["key"], f"leaves {made} values, and layers are there for even numbers of them")
        return made

    def _grid(self, said: Mapping[str, Any]) -> int:
        """Return the number of squares of a picture."""
        side, square = map(self._named, said["grid"])
        if side % square:
            raise self._wrong(said["key"], f"is {side}, and no multiple of {square}")
        return int((side // square) ** 2 + said.get("plus", 0))

    def _named(self, name: str) -> Any:
        return self._one(name, self._family.values[name])

    def _scaled(self, said: Mapping[str, Any]) -> int:
        """Return a number of channels times a factor, as MobileNets have it: rounded down, or to a multiple of a divisor."""
        channels = self._named(said["scaled"]) if isinstance(said["scaled"], str) else said["scaled"]
        wanted, least = channels * self._named(said["by"]), self._named(said["least"])
        if "divisor" in said:
            # transformers rounds MobileNet's channels first, and EfficientNet's not.
            wanted, divisor = wanted if said.get("unrounded") else round(wanted), self._named(said["divisor"])
            made = max(least, int(wanted + divisor / 2) // divisor * divisor)
            made += divisor * (made < 0.9 * wanted)  # not more than a tenth less
        else:
            made = max(least, int(wanted))
        return _whole(made, 1, _MOST_SIZE, lambda why: self._wrong(said["key"], f"makes a size that {why}"))

    def _lists(self, said: Mapping[str, Any], form: str) -> tuple[dict[str, list[int]], int | None]:
        """Return lists with an item for each stage or block, and the side of pictures where all are padded as TensorFlow does."""
        lists = {name: self._named(value) for name, value in said[form].items()}
        count = len(next(iter(lists.values())))
        for name, made in lists.items():
            if len(made) != count:
                raise self._wrong(self._family.values[said[form][name]]["key"], f"has {len(made)} items, and {said['key']} has {count}")
        if not set(lists["stride"]) <= {1, 2} or not all(kernel % 2 for kernel in lists["kernel"]):
            raise self._wrong(said["key"], "has stages of other strides than 1 and 2, or of filters with even sizes")
        side = self._named(said["side"]) if self._named(said["same"]) else None
        if side is not None and side % 2:
            raise self._wrong(self._family.values[said["side"]]["key"], f"is {side}, and with same_padding only even sides are known")
        return lists, side

    def _listed(self, said: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a row of values for each of the blocks that a config lists."""
        lists, side = self._lists(said, "listed")
        stages = lists["stage"]
        if stages[0] or any(after - before not in (0, 1) for before, after in itertools.pairwise(stages)):
            raise self._wrong(said["key"], "does not count stages from 0 on")
        if not set(lists["swish"]) <= {0, 1}:
            raise self._wrong(said["key"], "has blocks of other activations than relu (0) and hard_swish (1)")
        if len(stages) > MOST_ROWS:
            raise self._wrong(said["key"], f"has more than {MOST_ROWS} blocks")
        return listed_rows(lists, self._named(said["stem"]), self._named(said["even"]), side)

    def _stages(self, said: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a row of values for each block of stages."""
        lists, side = self._lists(said, "stages")
        padded = self._said(said["padded"])
        made = rows(
            lists, lambda channels: self._scaled({**said, "scaled": channels}), self._named(said["deep"]), self._named(said["squeeze"]),
            padded if isinstance(padded, list) else [], self._named(said["even"]), side,
        )  # fmt: skip
        if len(made) > MOST_ROWS:
            raise self._wrong(said["key"], f"makes more than {MOST_ROWS} blocks")
        return made

    def _derived(self, text: str, key: Any) -> int:
        """Return what a default says of another value: `name`, `name*4` or `name/other`."""
        of, _, under = text.partition("/")
        name, _, factor = of.partition("*")
        found: int = self._named(name) * int(factor or 1)
        parts = self._named(under) if under else 1
        if found % parts:
            raise self._wrong(key, f"is missing, and {found} is no multiple of {parts}")
        return found // parts

    def _kinds(self) -> dict[str, Callable[[str, Any], Any]]:
        return {
            "size": lambda key, value: _whole(value, 1, _MOST_SIZE, lambda why: self._wrong(key, why)),
            "count": lambda key, value: _whole(value, 1, _MOST_COUNT, lambda why: self._wrong(key, why)),
            "id": lambda key, value: _whole(value, 0, _MOST_SIZE, lambda why: self._wrong(key, why)),
            "sizes": lambda key, value: self._sizes(key, value, 1),
            "ids": lambda key, value: self._sizes(key, value, 0),
            "number": lambda key, value: self._number(key, value, 1e30),
            "share": lambda key, value: self._number(key, value, 1.0),
            "bool": self._bool,
            "activation": self._activation,
        }

    def _sizes(self, key: str, value: Any, least: int) -> list[int]:
        if not isinstance(value, list) or not 0 < len(value) <= _MOST_COUNT:
            raise self._wrong(key, f"is {shown(value)}, and not a list of sizes")
        return [_whole(each, least, _MOST_SIZE, lambda why: self._wrong(key, why)) for each in value]

    def _number(self, key: str, value: Any, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise self._wrong(key, f"is {shown(value)}, and not a number from 0 to {most:g}")
        return float(value)

    def _bool(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(key, f"is {shown(value)}, and not true or false")
        return value

    def _activation(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self._wrong(key, f"is {shown(value)}, and known are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def _wrong(self, key: str, why: str) -> PeError:
        hint = did_you_mean(key, list(self._config)) if why == "is missing" else None
        return bad(f"{self._where}: {key} {why}", hint or "another model of the family, or one without it")


def _whole(value: Any, least: int, most: int, wrong: Callable[[str], PeError]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(f"is {shown(value)}, and not a whole number from {least} to {most:,}")
    return value
