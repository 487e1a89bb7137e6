"""Data on a page: columns, parts, warnings, rows and pictures as HTML. Every text goes through `text`: files are not trusted."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from string import Template

from pe_cli.core.survey_figures import ClassShare, ColumnFacts, PartFacts, RowFacts, Survey
from pe_cli.core.yaml_inline import flow
from pe_cli.io.view.sections import text
from pe_cli.io.view.ticks import short

#: Classes of a target that are listed for every part.
CLASSES = 200
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def build_page(found: Survey, error: str = "") -> str:
    """Return a survey as a page of its own, which loads nothing and runs nothing.

    Args:
        found: what is told.
        error: why the data cannot be trained on; empty where it can.
    """
    view = resources.files("pe_cli.io.view")
    css = "".join(view.joinpath(name).read_text(encoding="utf-8") for name in ("chart.css", "page.css"))
    wrong = f'<p class="warning">{text(error)}</p>' if error else ""
    body = f"<section>{wrong}</section>{sections(found)}"
    return Template(view.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=text(f"{found.name}: data"), policy=_POLICY, css=css, badge="", body=body, data="{}", script=""
    )


def sections(found: Survey) -> str:
    """Return the sections of a survey that there is something to tell in."""
    return "".join(f"<section><h2>{title}</h2>{part}</section>" for title, part in _told(found))


def inside(found: Survey | None) -> str:
    """Return a survey as a part of another page; empty where there is none."""
    return "" if found is None else "".join(f"<h4>{title}</h4>{part}" for title, part in _told(found))


def _told(found: Survey) -> list[tuple[str, str]]:
    """Return title and HTML of everything that there is."""
    parts = [_parts(found.parts), _warnings(found), _columns(found), _sheet(found), _rows(found)]
    return [(title, part) for title, part in parts if part]


def _table(head: Sequence[str], rows: Sequence[str], kind: str = "") -> str:
    heads = "".join(f"<th>{text(cell)}</th>" for cell in head)
    look = f' class="{kind}"' if kind else ""
    return f'<div class="scroll"><table{look}><tr>{heads}</tr>{"".join(rows)}</table></div>'


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}%" if of else "-"


# --- parts ------------------------------------------------------------------------------------------------------------


def _parts(parts: Sequence[PartFacts]) -> tuple[str, str]:
    if not parts:
        return "Parts", ""
    rows = [f"<tr><th>{text(p.name)}</th><td>{p.rows:,}</td><td>{text(p.source)}</td></tr>" for p in parts]
    made = [_table(("part", "rows", "source"), rows)]
    for target in dict.fromkeys(name for part in parts for name in part.classes):
        made.append(_target(target, [part for part in parts if target in part.classes]))
    return "Parts", "".join(made)


def _target(target: str, parts: Sequence[PartFacts]) -> str:
    names = list(dict.fromkeys(share.name for part in parts for share in part.classes[target]))
    counts = [{share.name: share.rows for share in part.classes[target]} for part in parts]
    most = max(
        (count / max(1, part.rows) for found, part in zip(counts, parts, strict=True) for count in found.values()),
        default=1.0,
    )
    rows = []
    for name in names[:CLASSES]:
        cells = "".join(
            f"<td>{_bar(found.get(name, 0), part.rows, most, i)}</td>"
            for i, (found, part) in enumerate(zip(counts, parts, strict=True))
        )
        rows.append(f"<tr><th>{text(name)}</th>{cells}</tr>")
    more = f"<p class=note>and {len(names) - CLASSES:,} more classes</p>" if len(names) > CLASSES else ""
    return f"<h3>target {text(target)}</h3>{_table(('class', *(part.name for part in parts)), rows, 'bars')}{more}"


def _bar(count: int, rows: int, most: float, colour: int) -> str:
    share = count / rows if rows else 0.0
    width = f"{100 * share / (most or 1.0):.1f}%"
    bar = f'<span class="bar c{colour % 8}" style="width:{width}"></span>' if count else ""
    return f'{bar}<span class="value">{count:,} ({_percent(count, rows)})</span>'


def _warnings(found: Survey) -> tuple[str, str]:
    told = [f'<p class="warning">{text(one)}</p>' for one in found.warnings]
    told += [f"<p class=note>{text(one)}</p>" for one in found.notes]
    return "Warnings", "".join(told)


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(found: Survey) -> tuple[str, str]:
    rows = {part.name: part.rows for part in found.parts}
    made = []
    for column in found.columns:
        options = ", ".join(f"{key}: {flow(value)}" for key, value in column.options.items())
        kind = f"<strong>{text(column.type)}</strong><br><span class=value>{text(options)}</span>"
        role = f"{', '.join(column.feeds) or '-'}{' (target)' if column.target else ''}"
        seen = f"{text(role)}<br><span class=value>{text(column.kind)}</span>"
        facts = "<br>".join(text(fact) for fact in _facts(column))
        missing = ", ".join(
            f"{use} {count:,} ({_percent(count, rows.get(use, 0))})" for use, count in column.missing.items()
        )
        unknown = ", ".join(f"{use} {count:,}" for use, count in column.unknown.items())
        made.append(
            f"<tr><th>{text(column.name)}<br><span class=value>{text(column.how)}</span></th><td>{kind}</td><td>{seen}</td>"
            f"<td>{facts}{_classes(column, rows.get('train', 0))}</td><td>{text(missing) or '-'}</td><td>{text(unknown) or '-'}</td></tr>"
        )
    head = ("column", "type", "feed", "training rows", "missing", "unknown")
    return "Columns", _table(head, made, "bars") if made else ""


def _facts(column: ColumnFacts) -> Iterator[str]:
    figures = column.figures
    if figures is not None and not (column.classes and column.unit == "value"):
        unit = "" if column.unit == "value" else f" {column.unit} per row"
        yield f"{short(figures.low)} to {short(figures.high)}{unit}, mean {figures.mean:.4g}, deviation {figures.deviation:.4g}"
    if column.first:
        yield f"{column.first} to {column.last}"
    if column.note:
        yield column.note
    for one in column.longest:
        yield f"'{one}'"


def _classes(column: ColumnFacts, rows: int) -> str:
    if not column.classes:
        return ""
    most = max(share.rows for share in column.classes)
    lines = "".join(_class(share, rows, most) for share in column.classes)
    more = column.class_count - len(column.classes)
    return f'<table class="bars">{lines}</table>' + (
        f"<span class=value>and {more:,} more classes</span>" if more > 0 else ""
    )


def _class(share: ClassShare, rows: int, most: int) -> str:
    bar = f'<span class="bar c0" style="width:{100 * share.rows / (most or 1):.1f}%"></span>'
    said = f"{share.rows:,} ({_percent(share.rows, rows)})" if rows else f"{share.rows:,}"
    return f'<tr><th>{text(share.name)}</th><td>{bar}<span class="value">{said}</span></td></tr>'


# --- pictures and rows ------------------------------------------------------------------------------------------------


def _sheet(found: Survey) -> tuple[str, str]:
    note = f"<p class=note>{text(found.sheet_note)}</p>" if found.sheet_note else ""
    if not found.sheet:
        return "Pictures", note
    image = base64.b64encode(found.sheet).decode()
    return (
        "Pictures",
        f'{note}<div class="scroll"><img alt="pictures of the data" src="data:image/png;base64,{image}"></div>',
    )


def _rows(found: Survey) -> tuple[str, str]:
    if not found.rows:
        return "Rows", ""
    of: Mapping[str, list[str]] = {
        feed: [c.name for c in found.columns if feed in c.feeds] for row in found.rows for feed in row.feeds
    }
    feeds = list(of)
    made = [_row(row, feeds, of) for row in found.rows]
    note = "<p class=note>Training rows: what each feed of the model gets, above the cells that it is made of.</p>"
    return "Rows as the model sees them", note + _table(("row", *feeds), made)


def _row(row: RowFacts, feeds: Sequence[str], of: Mapping[str, Sequence[str]]) -> str:
    cells = []
    for feed in feeds:
        raw = " | ".join(f"{name}: {row.cells[name] or '(missing)'}" for name in of[feed] if name in row.cells)
        cells.append(f"<td>{text(row.feeds.get(feed, ''))}<br><span class=value>{text(raw)}</span></td>")
    return f"<tr><th>{row.row + 1}</th>{''.join(cells)}</tr>"
