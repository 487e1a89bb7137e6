"""Facts for a run's report that are computed from its config: layers, memory and timeline of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pe_cli.cli.common import Source
from pe_cli.core.errors import PeError

if TYPE_CHECKING:
    from pe_cli.core.survey_figures import Survey
    from pe_cli.io.view.model_facts import Facts, LayerFacts, MemoryFacts
    from pe_cli.metrics.curves import ClassifierEvaluation
    from pe_cli.metrics.error_shares import ErrorShares
    from pe_cli.metrics.principal_axes import EmbeddingPoints

#: Boxes of a graph on the page; more are joined by name scope.
MOST_BOXES = 60


def facts_of(folder: Path, *, profile: int = 0, overrides: Sequence[str] = (), curves: bool = True, embedding: str | None = None) -> Facts:
    """Return what a run's config and trace tell.

    Args:
        folder: of the run.
        profile: steps that are measured now; 0 takes trace.json where there is one.
        overrides: of the config, for measuring.
        curves: whether a classifier is run over its evaluation data, for its curves and its confusion matrix.
        embedding: layer by whose numbers rows of the evaluation are drawn; None for none.

    Raises:
        PeError: what is measured now can't be.
    """
    from pe_cli.cli.common import open_source
    from pe_cli.io.run_folder import RunFolder
    from pe_cli.io.view.model_facts import Facts
    from pe_cli.io.view.timeline import read_timeline, timeline

    run = RunFolder(folder)
    shown, why = read_timeline(run.trace_path)
    found = Facts(timeline=shown, notes=(why,) if why else ())
    if profile:
        # The note on the recorded trace goes, too: what is shown is measured now.
        found = Facts(timeline=timeline(_measured(run.resolved_path, tuple(overrides), profile)))
    try:
        source = open_source(run.resolved_path)
    except PeError as error:
        note = f"graph and memory are left out, because the config can't be read: {error.message}"
        return replace(found, notes=(*found.notes, note))
    memory, note = _memory(source)
    data, about = _data(run.path, source)
    notes = (*found.notes, *(said for said in (note, about) if said))
    (judged, errors), why = _judged(folder) if curves else ((None, ()), "")
    notes = (*notes, why) if why else notes
    drawn = None if embedding is None else _embedding(folder, embedding)
    facts = replace(static_facts(source), timeline=found.timeline, memory=memory, notes=notes)
    return replace(facts, data=data, judged=judged, errors=errors, embedding=drawn)


def _embedding(folder: Path, layer: str) -> EmbeddingPoints:
    """Return where rows of the evaluation lie by a layer."""
    from pe_cli.cli.common import open_trained
    from pe_cli.session.evaluation.embedding_points import embedding_of

    job, _ = open_trained(folder, (), None)
    if "eval" not in job.run.data:
        raise PeError(f"--embedding {layer}: {folder} has no data.eval, whose rows are drawn", hint="leave --embedding out")
    return embedding_of(job, "eval", layer)


def _measured(config: Path, overrides: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Return the trace of some steps that are done now."""
    from pe_cli.cli.progress import Quiet
    from pe_cli.session.benchmarks.profiling import trace_of_phases
    from pe_cli.session.job import Job

    job = Job.open(config, overrides, Quiet())
    job.initialise()
    return trace_of_phases(job, steps)


def _judged(folder: Path) -> tuple[tuple[ClassifierEvaluation | None, tuple[ErrorShares, ...]], str]:
    """Return what a model does over its evaluation data: curves of a classifier, errors by column; and what could not be told."""
    from pe_cli.cli.common import open_trained
    from pe_cli.session.evaluation.classifier_report import judged
    from pe_cli.session.evaluation.error_report import errors_of

    try:
        job, _ = open_trained(folder, (), None)
        if "eval" not in job.run.data:
            return (None, ()), ""
        return (judged(job, "eval"), errors_of(job, "eval")), ""
    except PeError as error:
        return (None, ()), f"curves, the confusion matrix and errors by column are left out: {error.message}"


def _data(folder: Path, source: Source) -> tuple[Survey | None, str]:
    """Return what a run's columns have learned, with some of its pictures, and what could not be told."""
    from pe_cli.core.types import Place
    from pe_cli.data.fitted_columns import NAME, Fitted
    from pe_cli.io.checkpoint import read_files
    from pe_cli.io.used_checkpoint import used
    from pe_cli.session.data.contact_sheet import contact_sheet_of
    from pe_cli.session.data.fitted_columns import learned
    from pe_cli.session.job import Job

    try:
        checkpoint = used(folder)
        files = read_files(checkpoint)
        fitted = Fitted.from_files(files, str(checkpoint)) if NAME in files else None
    except PeError as error:
        return None, f"data is left out: {error.message}"
    if fitted is None or not fitted.columns:
        return None, ""
    # On the CPU: pictures need no other device, which may be absent or busy where the report is written.
    sheet, note = (b"", ""), ""
    if source.run is not None and any(column.type == "image" for column in fitted.columns.values()):
        try:
            sheet = contact_sheet_of(Job(source.run, built=source.built, places=[Place("cpu", 0)], fitted=fitted), "train")
        except PeError as error:
            note = f"pictures are left out: {error.message}"
    return learned(folder.name, fitted, sheet), note


def static_facts(source: Source) -> Facts:
    """Return what needs no plan: the graph of every phase of a step, and the layers."""
    from pe_cli.cli.graph import picture_of_stage
    from pe_cli.core.types import Place
    from pe_cli.graph.picture_collapse import collapse
    from pe_cli.io.view.drawing import graph_svg
    from pe_cli.io.view.model_facts import Facts, GraphFacts
    from pe_cli.session.device_choice import Resources

    graphs = []
    for phase in _phases(source):
        picture = picture_of_stage(phase, "fused", Resources((Place("cpu", 0),), 0, ""), evaluation=False)
        svg, how = graph_svg(collapse(picture, MOST_BOXES))
        what = f"Phase {phase.phase} of the training step" if phase.phase else "The training step"
        graphs.append(GraphFacts(svg, f"{what} on one device; {how}.", f"phase {phase.phase}" if phase.phase else ""))
    return Facts(graphs=tuple(graphs), layers=_layers(source))


def _phases(source: Source) -> list[Source]:
    """Return a config once for each phase that its steps have; itself where they have no phases with names."""
    return [source.of_phase(phase.name) for phase in source.built.phases if phase.name] or [source]


def _layers(source: Source) -> tuple[LayerFacts, ...]:
    from pe_cli.cli.layers_table import rows_of
    from pe_cli.io.view.model_facts import LayerFacts

    return tuple(
        LayerFacts(
            row.key,
            row.type,
            ", ".join(str(kind) for _, kind in row.shown()),
            sum(p.type.nbytes for p in row.parameters),
            row.nbytes * source.batch_size,
            row.flops,
        )
        for row in rows_of(source)
    )


def _memory(source: Source) -> tuple[tuple[MemoryFacts, ...], str]:
    """Return the memory of every phase of a planned step, or why there is none."""
    from pe_cli.cli.common import resources_of
    from pe_cli.cli.graph import plan_of
    from pe_cli.core.errors import ExitCode
    from pe_cli.session.benchmarks.plan_facts import memory_of

    found: list[MemoryFacts] = []
    try:
        for phase in _phases(source):
            executor, plan = plan_of(phase, resources_of(source))
            found += memory_of(executor, plan, phase.phase or "")
    except PeError as error:
        # A report may be written on another machine than the run's, which lacks its devices: only that is forgiven.
        if error.code not in (ExitCode.DEVICE, ExitCode.USAGE):
            raise
        return (), f"memory is left out, because a step can't be planned here: {error.message}"
    return tuple(found), ""
