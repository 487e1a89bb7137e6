"""Tagged words, from pe init to tags of new sentences."""

from __future__ import annotations

import random

from tests.cli.conftest import Pe


def test_words_get_tags(pe: Pe, tmp_path):
    chosen = random.Random(0)
    lines = []
    for _ in range(120):
        person, place = chosen.choice(["Anna", "Bo", "Cleo", "Dan"]), chosen.choice(["Rome", "Oslo", "Paris"])
        words = chosen.choice([f"{person} lives in {place}", f"in {place} {person} sleeps", f"{person} left {place}"]).split()
        lines += [f"{word}\t{'B-PER' if word == person else 'B-LOC' if word == place else 'O'}" for word in words] + [""]
    (tmp_path / "t.conll").write_text("\n".join(lines))
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "t.conll")
    assert made.code == 0, made.err
    assert "120 sentences of " in made.out
    assert "3 tags: B-LOC, B-PER, O" in made.out
    short = ("-o", "train.epochs=40", "-o", "executor.devices=1", "-o", f"output.dir={tmp_path}/runs")
    trained = pe("train", tmp_path / "c.yaml", "--quiet", *short)
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "new.conll").write_text("Cleo x\nlives x\nin x\nOslo x\n")
    said = pe("predict", run, tmp_path / "new.conll")
    assert said.code == 0, said.err
    assert said.out.splitlines()[1].endswith("B-PER O O B-LOC")
