"""Lines of slots that programs make of other lines, as data sets read them."""

from __future__ import annotations

import io
import sys

import pytest

from pe_cli.paddle.fluid.incubate import data_generator as dg


class Words(dg.MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            numbers = [int(word) for word in (line or "7 8").split()]
            yield ("words", numbers), ("label", [len(numbers) / 2])
            yield None

        return samples


def test_lines_become_slots(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2 3\n4\n"))
    made, batches = Words(), []
    made.generate_batch = lambda samples: batches.append(len(samples)) or (lambda: iter(samples))
    made.set_batch(1)
    made.run_from_stdin()
    made.set_batch(5)
    made.run_from_memory()
    assert capsys.readouterr().out == "3 1 2 3 1 1.5\n1 4 1 0.5\n2 7 8 1 1.0\n"
    assert (batches, made._proto_info) == ([1, 1, 1], [("words", "uint64"), ("label", "float")])


def test_texts_are_written_as_they_are():
    assert dg.MultiSlotStringDataGenerator()._gen_str([("words", ["1926", "08", "17"]), ("label", ["1"])]) == "3 1926 08 17 1 1\n"


def test_a_zip_is_a_list_of_slots_as_in_python_2():
    assert dg.MultiSlotStringDataGenerator()._gen_str(zip(["a", "b"], [["5"], ["6", "7"]], strict=True)) == "1 5 2 6 7\n"
    assert dg.MultiSlotDataGenerator()._gen_str(zip(["a", "b"], [[5], [6, 7]], strict=True)) == "1 5 2 6 7\n"


@pytest.mark.parametrize(
    ("sample", "error", "message"),
    [
        pytest.param("words", TypeError, "a sample is 'words'", id="no list"),
        pytest.param([("words", [])], ValueError, "slot 'words' has the values", id="an empty slot"),
        pytest.param([("words", ["a"])], ValueError, "MultiSlotStringDataGenerator takes texts", id="a text"),
        pytest.param([("other", [1])], ValueError, "has the slots", id="another slot than the first sample's"),
    ],
)
def test_samples_that_are_none(sample, error, message):
    made = dg.MultiSlotDataGenerator()
    made._gen_str([("words", [1])])
    with pytest.raises(error, match=message):
        made._gen_str(sample)


def test_a_class_without_its_parts(capsys):
    with pytest.raises(NotImplementedError, match="generate_sample"):
        dg.DataGenerator().run_from_memory()
    with pytest.raises(ValueError, match="batch_size is 0"):
        dg.DataGenerator().set_batch(0)
