"""Times until an event, of which some are censored: pe init --event."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from tests.cli.conftest import Pe


def write(folder, name="t.csv", count=600, words=("yes", "no"), seed=1):
    """Write times of two groups whose medians are 20 and 5 months by a Weibull distribution, and which are seen for 12 months at most."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, count)
    median = np.where(group == 1, 5.0, 20.0)
    times = median * (rng.exponential(size=count) / np.log(2)) ** (1 / 1.5)
    last = rng.uniform(6, 12, count)
    seen = times <= last
    kept = np.minimum(times, last)
    rows = zip(group, kept, seen, strict=True)
    lines = [f"{'b' if g else 'a'},{rng.normal():.3f},{t:.2f},{words[0] if s else words[1]}" for g, t, s in rows]
    (folder / name).write_text("group,noise,months,relapsed\n" + "\n".join(lines) + "\n")
    return seen


def test_medians_are_those_of_the_data(pe: Pe, tmp_path):
    seen = write(tmp_path)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months", "--event", "relapsed")
    assert made.code == 0, made.err
    assert "'months' is taken for a time until an event" in made.out
    assert f"was seen where it is yes: {seen.sum()} of 600 rows" in made.out
    assert "left out" not in made.out
    trained = pe("train", tmp_path / "c.yaml", "--quiet", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    assert float(trained.out.split("eval/concordance ")[1].split()[0]) > 0.6
    (run,) = (tmp_path / "runs").iterdir()
    # rows to be predicted have neither a time nor an event
    (tmp_path / "new.csv").write_text("group,noise\na,0\nb,0\n")
    said = pe("predict", run / "checkpoints" / "best", tmp_path / "new.csv")
    assert said.code == 0, said.err
    long, short = (float(row["months"]) for row in csv.DictReader(io.StringIO(said.out)))
    # The mean of the times as they are is 8.2 and 4.9 months; half of group a is never seen to relapse.
    assert (15 < long < 27, 4 < short < 6.5) == (True, True), (long, short)
    assert pe("eval", run, tmp_path / "t.csv").code == 0
    assert pe("report", run, "--out", tmp_path / "r.html").code == 0
    # What a censored time is off by is not known.
    assert "Errors by column" not in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(("words", "options", "said"), [
    pytest.param(("1", "0"), (), "where it is 1", id="1 and 0"),
    pytest.param(("dead", "alive"), (), "where it is dead", id="dead and alive"),
    pytest.param(("2", "1"), ("--columns", 'relapsed={type: bool, "yes": ["2"], "no": ["1"]}'), "where it is 2", id="said by hand"),
])  # fmt: skip
def test_events(pe: Pe, tmp_path, words, options, said):
    write(tmp_path, words=words)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months", "--event", "relapsed", *options)
    assert (made.code, said in made.out) == (0, True), made.err
    assert pe("check", tmp_path / "c.yaml").code == 0


@pytest.mark.parametrize(("words", "options", "code", "said"), [
    pytest.param(("2", "1"), (), 3, "of which none is known to mean that the event was seen", id="no yes"),
    pytest.param(("", "no"), (), 3, "the cell is missing, and it says whether the event was seen", id="a gap"),
    pytest.param(("no", "no"), (), 3, "none is known to mean", id="no event"),
    pytest.param(("yes", "no"), ("--task", "classes"), 2, "--event goes with a time, and --task classes predicts none", id="a task"),
    pytest.param(("yes", "no"), ("--drop", "relapsed"), 2, "the column is the --event", id="dropped"),
])  # fmt: skip
def test_what_is_refused(pe: Pe, tmp_path, words, options, code, said):
    write(tmp_path, words=words)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months", "--event", "relapsed", *options)
    assert (made.code, said in made.err) == (code, True), made.err


def test_a_negative_time_and_a_missing_column(pe: Pe, tmp_path):
    write(tmp_path)
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "t.csv").write_text(text + "a,0,-3,yes\n")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months", "--event", "relapsed")
    assert (made.code, "t.csv:602:5: error: column 'months': '-3' is no time" in made.err) == (3, True), made.err
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months", "--event", "relapse")
    assert (made.code, "--event: the data has no column 'relapse'" in made.err) == (3, True), made.err
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target", "months,noise", "--event", "relapsed")
    assert (made.code, "goes with one --target" in made.err) == (2, True), made.err
