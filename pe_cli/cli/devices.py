"""pe devices: what can compute here, and where compiled kernels are kept."""

from __future__ import annotations

import click

from pe_cli.cli.common import json_option
from pe_cli.cli.terminal_text import echo


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Print what can compute here.

    Cores, vector width, CUDA devices or why there is none, and the cache of compiled kernels.
    """
    from pe_cli.cli.common import print_json
    from pe_cli.cli.text_columns import columns

    facts = _facts()
    if as_json:
        print_json(facts)
    else:
        echo(columns([(name.replace("_", " "), _shown(value)) for name, value in facts.items()]))


def _facts() -> dict[str, object]:
    import os

    from pe_cli.core.errors import PeError
    from pe_cli.core.limits import memory, usable_cores
    from pe_cli.devices.cuda import cuda_count
    from pe_cli.devices.cuda_libraries import loaded_libraries
    from pe_cli.io.environment import cpu_model
    from pe_cli.kernels.compiler import cache, target
    from pe_cli.session.device_choice import resolve_places

    try:
        default = resolve_places("cpu", "auto").text
    except PeError as error:
        default = error.message
    count, why_not = cuda_count()
    cards = _cards(count) if count > 1 else count or f"0: {why_not}"
    there = os.scandir(cache.folder()) if cache.folder().is_dir() else ()
    files = [entry.stat() for entry in there if entry.name.endswith(".o")]
    return {
        "cpu": cpu_model(),
        "llvm_name": target.cpu_name(),
        "cores_usable": usable_cores(),
        "memory_bytes": memory(),
        "vector_bits": 8 * target.vector_bytes(),
        "CPU_NUM": os.environ.get("CPU_NUM", "unset"),
        "devices_auto": default,
        "cuda_devices": cards,
        "cuda_libraries": loaded_libraries.told("auto"),
        "kernel_cache": str(cache.folder()),
        "kernels_kept": len(files),
        "kernel_bytes": sum(f.st_size for f in files),
    }


def _cards(count: int) -> str:
    """Return how many cards there are, and how many of them a training uses together."""
    from pe_cli.core.errors import PeError
    from pe_cli.devices.cuda_device_group import together

    try:
        usable, why = together(count)
    except PeError as error:
        usable, why = 0, error.message
    return f"{count}, of which devices: auto takes {usable}{f': {why}' if why else ''}"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
