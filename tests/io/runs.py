"""Folders of runs as tests need them, written by hand and not by pe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

CONFIG = "train: {loss: loss, batch_size: 4}\noutput: {checkpoint: {best: {by: eval/acc, mode: max}}}\n"
#: Text that a page must only ever show: as markup it would run, or end what it stands in.
EVIL = "</script></title></style><img src=x onerror=\"document.documentElement.dataset.hacked=1\">'\"&lt;$title"


def make_run(
    parent: Path,
    name: str = "digits-20240229-120005",
    metrics: Iterable[Mapping[str, object]] = (),
    *,
    config: str = CONFIG,
    env: Mapping[str, object] | None = None,
    **status: object,
) -> Path:
    """Write a run's folder and return it."""
    folder = parent / name
    folder.mkdir(parents=True)
    begin = datetime(2024, 2, 29, 12, tzinfo=UTC)
    given = {"state": "done", "step": 20, "epoch": 2, "started": begin.isoformat(), "best": None, "pid": 1}
    given["updated"] = (begin + timedelta(seconds=90)).isoformat()
    (folder / "status.json").write_text(json.dumps({**given, **status}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    (folder / "resolved.yaml").write_text(config)
    (folder / "env.json").write_text(json.dumps(env or {"pe": "1", "cores": 2, "packages": {"numpy": "2.0"}}))
    return folder


def ordinary(loss: float = 1.0) -> list[dict[str, object]]:
    """Return the metrics of a run of 20 steps."""
    made: list[dict[str, object]] = []
    for step in range(2, 21, 2):
        made.append({"step": step, "epoch": 1, "split": "train", "loss": loss / step, "learning_rate": 0.1, "gradient_norm": 2 / step,
                     "gradient_norm/fc.w_0": 1.5 / step, "gradient_norm/fc.b_0": 0.2 / step})  # fmt: skip
    made.append({"step": 10, "epoch": 1, "split": "eval", "loss": 0.3, "acc": 0.9})
    made.append({"step": 20, "epoch": 2, "split": "eval", "loss": 0.2, "acc": 0.8})
    return made


def hostile(parent: Path) -> Path:
    """Write a run whose every text wants to be markup."""
    folder = make_run(
        parent,
        "evil &<b>-20240229-120005",
        [*ordinary(), {"step": 3, "epoch": 1, "split": "train", EVIL: 1.0, f"gradient_norm/{EVIL}": 1.0}],
        config=CONFIG + f"# {EVIL}\nnotes: {json.dumps(EVIL)}\n",
        env={EVIL: EVIL, "packages": {EVIL: EVIL}},
        state=EVIL,
    )
    event = {"name": EVIL, "cat": EVIL, "ph": "X", "ts": 0, "dur": 5, "pid": 1, "tid": 0, "args": {"kernels": EVIL, "at": EVIL}}
    name = {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": EVIL}}
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [name, event, {"ph": "X"}, 3]}))
    return folder
