"""The report's page: one HTML file that needs nothing else, for one run or several."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from string import Template

from pe_cli.graph.dot import size_text
from pe_cli.io import strict_json
from pe_cli.io.history import Run
from pe_cli.io.view.charts import charts_of
from pe_cli.io.view.classifier_report import judgement
from pe_cli.io.view.data_page import inside
from pe_cli.io.view.embedding import embedding
from pe_cli.io.view.error_report import errors_by_column
from pe_cli.io.view.model_facts import Facts
from pe_cli.io.view.sections import chart_data, charts, gradients, memory, side_by_side, summary, text

#: How a timeline is read.
_LANES = "Kernels by thread, one lane per thread of a device. Ctrl and wheel, or two fingers, to zoom; drag to move; double-click for all."


def build_page(
    runs: Sequence[Run], facts: Sequence[Facts], *, live: bool = False, folds: Sequence[Sequence[object]] = ()
) -> str:
    """Return the page.

    Args:
        runs: one or more; charts hold all of them.
        facts: of each run.
        live: whether the page asks the address `events` beside it for news.
        folds: where the runs are folds of one config, a table of their metrics: a header, and rows with a name each.
    """
    script = _file("page.js")
    page = parts(runs)
    body = [
        f'<section id="summary">{page["summary"]}</section>',
        *_folds(folds),
        f'<section><h2>Curves</h2><div id="charts" class="plots">{page["charts"]}</div>',
        f'<div id="gradients">{page["gradients"]}</div></section>',
        *_each("Evaluation", runs, [judgement(f.judged) for f in facts]),
        *_each("Embedding", runs, [embedding(f.embedding) for f in facts]),
        *_each("Errors by column", runs, [errors_by_column(f.errors) for f in facts]),
        *_each("Data", runs, [inside(f.data) for f in facts]),
        *_timelines(runs, facts, live),
        *_each("Graph", runs, [_graph(f) for f in facts]),
        *(_live_memory(facts[0]) if live else _each("Memory", runs, [memory(f) for f in facts])),
        *_config(runs),
        *_environment(runs),
    ]
    notes = [f"<p class=note>{text(run.name)}: {text(n)}</p>" for run, f in zip(runs, facts, strict=True) for n in f.notes]
    data = {"charts": page["data"], "timelines": [f.timeline for f in facts], "live": live}
    return Template(_file("page.html")).substitute(
        title=text(", ".join(run.name for run in runs)),
        policy=_policy(script, live),
        css=_file("chart.css") + _file("page.css"),
        badge='<span id="live" class="state running">live</span>' if live else "",
        body="\n".join([*body, *notes]),
        data=_embedded(data),
        script=script,
    )


def parts(runs: Sequence[Run]) -> dict[str, object]:
    """Return what changes while a run goes: HTML of the summary, of the charts and of gradients, and the charts' values."""
    found = charts_of(runs)
    return {
        "summary": summary(runs),
        "charts": charts(found, len(runs) > 1),
        "gradients": "".join(map(gradients, runs)),
        "data": chart_data(found),
    }


def _file(name: str) -> str:
    return resources.files("pe_cli.io.view").joinpath(name).read_text(encoding="utf-8")


def _policy(script: str, live: bool) -> str:
    """Return a content security policy: only our script runs, and nothing is loaded from anywhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; connect-src {connect};"
        " base-uri 'none'; form-action 'none'"
    )


def _embedded(data: object) -> str:
    """Return JSON that can stand in a script element: it can't end it."""
    made = strict_json.dumps(data)
    for c in "<>&\u2028\u2029":
        made = made.replace(c, f"\\u{ord(c):04x}")
    return made


def _folds(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the metrics of folds, with mean and deviation."""
    if not rows:
        return []
    head = "".join(f"<th>{text(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr><th>{text(row[0])}</th>{''.join(f'<td>{text(cell)}</td>' for cell in row[1:])}</tr>" for row in rows[1:])
    return [f"<section><h2>Folds</h2><table><tr>{head}</tr>{body}</table></section>"]


def _heading(runs: Sequence[Run], index: int) -> str:
    return f"<h3>{text(runs[index].name)}</h3>" if len(runs) > 1 else ""


def _each(title: str, runs: Sequence[Run], found: Sequence[str]) -> list[str]:
    """Return a section with a part for every run that has one; what is the same for several is there once."""
    made = []
    for part in dict.fromkeys(p for p in found if p):
        names = ", ".join(text(run.name) for run, p in zip(runs, found, strict=True) if p == part)
        made.append(f"<h3>{names}</h3>{part}" if len(runs) > 1 else part)
    return [f"<section><h2>{title}</h2>{''.join(made)}</section>"] if made else []


def _graph(facts: Facts) -> str:
    buttons = "".join(
        f'<button type="button" data-zoom="{z}" aria-label="{name}">{sign}</button>'
        for z, name, sign in (("in", "larger", "+"), ("out", "smaller", "&minus;"), ("fit", "whole graph", "fit"))
    )
    tools = f'<div class="tools">{buttons}<span>drag to move; Ctrl and wheel, or two fingers, to zoom</span></div>'
    return "".join(
        f'{f"<h4>{text(graph.title)}</h4>" if graph.title else ""}{tools}<div class="graph" tabindex="0">{graph.svg}</div>'
        f"<p class=note>{text(graph.note)}</p>"
        for graph in facts.graphs
    )


def _live_memory(facts: Facts) -> list[str]:
    """Return memory of a run that goes, which is known after its first steps."""
    return [f'<section><h2>Memory</h2><div id="memory">{memory(facts)}</div></section>']


def _timelines(runs: Sequence[Run], facts: Sequence[Facts], live: bool) -> list[str]:
    if live:
        hidden = "" if facts[0].timeline else " hidden"
        lanes = '<div class="roles"></div><div class="timeline" data-timeline="0"><canvas></canvas></div>'
        how = f"One step of this run, looked at after this page was opened. {_LANES}"
        return [f'<section id="timelines"{hidden}><h2>Timeline</h2><p class=note>{how}</p>{lanes}</section>']
    made = [
        f'{_heading(runs, i)}<div class="roles"></div><div class="timeline" data-timeline="{i}"><canvas></canvas></div>'
        for i, f in enumerate(facts)
        if f.timeline
    ]
    if not made:
        return []
    return [f"<section><h2>Timeline</h2><p class=note>{_LANES}</p>{''.join(made)}</section>"]


def _config(runs: Sequence[Run]) -> list[str]:
    texts = [
        f"<details><summary>{text(run.name)}: resolved.yaml</summary><pre>{text(run.config_text)}</pre></details>"
        for run in runs
    ]
    return [f"<section><h2>Config</h2>{side_by_side('configs', runs, [r.config for r in runs])}{''.join(texts)}</section>"]


def _environment(runs: Sequence[Run]) -> list[str]:
    rows = []
    for key, value in runs[0].environment.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items() if v) if isinstance(value, dict) else value
        if key == "memory" and isinstance(value, int):
            shown = size_text(value)
        rows.append(f"<tr><th>{text(key)}</th><td>{text(shown)}</td></tr>")
    of = f" of {text(runs[0].name)}" if len(runs) > 1 else ""
    apart = side_by_side("environments", runs, [r.environment for r in runs])
    table = f'<div class="scroll"><table class="facts">{"".join(rows)}</table></div>'
    return [f"<section><h2>Environment{of}</h2>{apart}{table}</section>"]
