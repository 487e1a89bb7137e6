"""Confusion matrices against hand counts and scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pe_cli
from pe_cli.cli.main import cli
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.program.ir import Program
from pe_cli.session.evaluation.confusion_matrix import Confusion, classifier, confusion
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.job import Job

CONFIGS = Path(pe_cli.__file__).parents[1] / "configs"


def test_precision_recall_and_f1_by_hand():
    found = Confusion(np.array([[3, 1], [2, 4]]), ("cat", "dog")).per_class()
    assert found[0] == pytest.approx({"class": "cat", "precision": 3 / 5, "recall": 3 / 4, "f1": 2 / 3, "samples": 4})
    assert found[1] == pytest.approx({"class": "dog", "precision": 4 / 5, "recall": 4 / 6, "f1": 8 / 11, "samples": 6})


def test_a_class_that_never_comes_counts_as_zero():
    found = Confusion(np.array([[2, 0], [0, 0]]), ("a", "b")).per_class()[1]
    assert found == {"class": "b", "precision": 0.0, "recall": 0.0, "f1": 0.0, "samples": 0}


def test_many_classes_print_the_pairs_that_are_confused_most():
    counts = np.eye(20, dtype=np.int64) * 5
    counts[3, 4] = 7
    text = Confusion(counts, tuple(map(str, range(20)))).text()
    assert "      7 of 3 taken for 4" in text
    assert "rows: true class" not in text


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    """Return the folder of a run over the irises."""
    folder = tmp_path_factory.mktemp("iris")
    args = ["train", str(CONFIGS / "iris.yaml"), "-o", f"output.dir={folder / 'runs'}", "-o", "train.epochs=40"]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, done.output
    (run,) = (folder / "runs").iterdir()
    return run


def test_counts_and_report_are_those_of_scikit_learn(iris):
    metrics = pytest.importorskip("sklearn.metrics")
    from pe_cli.cli.common import open_trained

    job, _ = open_trained(iris, (), None)
    found = confusion(job, "eval")
    scores, label = classifier(job.built.eval)
    batches = list(Evaluator(job).predict("eval", [scores, label]))
    truth = np.concatenate([b[label].reshape(-1) for b in batches])
    taken = np.concatenate([b[scores].argmax(axis=1) for b in batches])
    assert found.counts.tolist() == metrics.confusion_matrix(truth, taken).tolist()
    theirs = metrics.classification_report(truth, taken, target_names=found.names, output_dict=True)
    for row in found.per_class():
        other = theirs[row["class"]]
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx(
            (other["precision"], other["recall"], other["f1-score"])
        )


def test_the_command_prints_names_of_classes_and_writes_the_matrix(iris, tmp_path):
    out = tmp_path / "confusion.csv"
    done = CliRunner().invoke(cli, ["eval", str(iris), "--classes", "--confusion", str(out)])
    assert done.exit_code == 0, done.output
    assert "setosa" in done.output
    header, first, *_ = out.read_text().splitlines()
    assert header == "true,setosa,versicolor,virginica"
    assert first.startswith("setosa,")
    assert sum(int(v) for line in out.read_text().splitlines()[1:] for v in line.split(",")[1:]) == 30


def test_a_model_that_is_no_classifier_is_told():
    program = Program("p")
    program.global_block().create_var("x", TensorType((-1, 3)), is_data=True)
    with pytest.raises(PeError, match="no accuracy and no loss"):
        classifier(program)


def test_another_accuracy_than_of_the_first_class_is_found():
    job = Job.open(CONFIGS / "digits.yaml", smoke=True)
    scores, label = classifier(job.built.eval)
    assert label == "label"
    assert job.built.eval.global_block().var(scores).shape == (-1, 10)
