"""What a shell offers after Tab: configs, runs, keys of `-o` and names of layers. Nothing here fails: it offers less."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

#: Variable of the environment by which a shell's script asks.
VARIABLE = "_PE_COMPLETE"
#: Files that are looked into, and bytes that are read of each, so that Tab stays quick in a large folder.
MOST_FILES = 200
HEAD = 4096
#: Commands that take a model file alone too.
TAKE_MODELS = ("check", "graph", "summary")


def configs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the configs that begin so, in this folder and those below; any file where there is none."""
    del param
    wanted = r"^(model|extends|layers)\s*:" if ctx.info_name in TAKE_MODELS else r"^(model|extends)\s*:"
    # A glance at the first bytes tells a config from other YAML files; parsing each would make Tab slow.
    found = [name for name in _files(incomplete, "*.y*ml") if re.search(wanted, _head(name), re.MULTILINE)]
    return _items(found) or [CompletionItem(incomplete, type="file")]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the folders of runs that begin so, the newest first; any folder where there is none."""
    del ctx, param
    return _items(_runs(incomplete)) or [CompletionItem(incomplete, type="dir")]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the folders of runs, or where there is none, configs."""
    return _items(_runs(incomplete)) or configs(ctx, param, incomplete)


def scripts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the Python files that begin so, in this folder and those below; any file where there is none."""
    del ctx, param
    return _items(_files(incomplete, "*.py")) or [CompletionItem(incomplete, type="file")]


def overrides(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return keys of the config that begin so, or after `=` the values that a key takes where they are few."""
    del ctx, param
    from pe_cli.config.sections.run_file import RunFile

    schema = RunFile.model_json_schema(by_alias=True)
    keys = dict(_leaves(schema, schema.get("$defs", {})))
    del keys["extends"]  # it is read before -o
    key, equals, value = incomplete.partition("=")
    if equals:
        return _items(f"{key}={option}" for option in _options(keys.get(key, {})) if option.startswith(value))
    return [
        CompletionItem(f"{name}=", help=str(leaf.get("description", "")).partition("\n")[0] or None)
        for name, leaf in keys.items()
        if name.startswith(key)
    ]


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the layers and ops that begin so."""
    del ctx, param
    from pe_cli.cli.catalogue import names as known

    return _items(name for name in known() if name.startswith(incomplete))


def _items(values: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values]


def _files(incomplete: str, pattern: str) -> list[str]:
    parent = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    # One folder deep and bounded: Tab must answer at once, also in a home folder.
    found = itertools.chain(parent.glob(pattern), parent.glob(f"*/{pattern}"))
    paths = itertools.islice((p for p in found if not p.parent.name.startswith(".")), MOST_FILES)
    return sorted(name for name in map(str, paths) if name.startswith(incomplete.removeprefix("./")))


def _head(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return file.read(HEAD).decode(errors="replace")
    except OSError:
        return ""


def _runs(incomplete: str) -> list[str]:
    from pe_cli.io.run_files import is_run

    parent = Path(incomplete).parent if "/" in incomplete else Path("runs")
    try:
        entries = [e for e in os.scandir(parent) if is_run(Path(e.path))]
        newest = sorted(entries, key=lambda e: -e.stat().st_mtime)
    except OSError:
        return []
    return [path for path in (str(Path(e.path)) for e in newest) if path.startswith(incomplete.removeprefix("./"))]


def _leaves(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], above: str = "", depth: int = 0
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return dotted keys with their schemas."""
    for key, found in schema.get("properties", {}).items():
        whole = f"{above}.{key}" if above else key
        inner = [definitions[r] for r in _references(found) if definitions.get(r, {}).get("properties")]
        # Bounded, as sections may hold sections of their own kind.
        if inner and depth < 3:
            for section in inner:
                yield from _leaves(section, definitions, whole, depth + 1)
        else:
            yield whole, found


def _references(schema: Mapping[str, Any]) -> list[str]:
    options = (schema, *schema.get("anyOf", ()), *schema.get("allOf", ()))
    return [str(o["$ref"]).rpartition("/")[2] for o in options if "$ref" in o]


def _options(schema: Mapping[str, Any]) -> list[str]:
    """Return the values that a key takes where its schema lists them."""
    if schema.get("type") == "boolean":
        return ["true", "false"]
    found = [str(v).lower() if isinstance(v, bool) else str(v) for v in schema.get("enum", ())]
    found += [str(schema["const"]).lower()] if "const" in schema else []
    return found + [option for inner in schema.get("anyOf", ()) for option in _options(inner)]


class Bash(BashComplete):
    """Bash, which takes `key=value` for three words; completion goes on behind the `=`, and adds no space after one."""

    # bash splits words at `=`, so that a key and its value arrive as several; a key alone must not be followed by a blank.
    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *= ]] && compopt -o nospace\n    return 0\n"
    )
    _behind = False

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that one, joined around `=`."""
        args, incomplete = super().get_completion_args()
        if incomplete == "=" and args:
            args, incomplete, self._behind = args[:-1], f"{args[-1]}=", True
        elif len(args) > 1 and args[-1] == "=":
            args, incomplete, self._behind = args[:-2], f"{args[-2]}={incomplete}", True
        return args, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return a line for the script."""
        # bash has the part before `=` as a word of its own, and wants only what follows it.
        value = item.value.partition("=")[2] if self._behind else item.value
        return f"{item.type},{value}"


def register() -> None:
    """Answer bash in our way; zsh and fish in click's."""
    add_completion_class(Bash)
