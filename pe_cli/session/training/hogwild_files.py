"""The training files of `executor.type: async`, sharded over processes and then over threads, whole files each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pe_cli.config.nodes import Entry, ListNode, ScalarNode, to_data
from pe_cli.config.spec import RunSpec


def training_files(run: RunSpec) -> list[str]:
    """Return the files that threads take, as written; none where the run file says nothing of training data."""
    spec = run.data.get("train")
    if spec is None:
        return []
    return list(run.executor.files or to_data(spec.options).get("files", []))


def with_files(run: RunSpec, files: Sequence[str]) -> RunSpec:
    """Return a run that takes these files alone."""
    spec = run.data["train"]
    node = ListNode(tuple(ScalarNode(file, spec.at, file) for file in files), spec.at)
    own = replace(spec, options=spec.options.with_entry(Entry("files", spec.at, node)))
    return replace(run, data={**run.data, "train": own}, executor=run.executor.model_copy(update={"files": list(files)}))
