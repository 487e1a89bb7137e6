"""Programs that turn lines of any text into lines of slots; `set_pipe_command` of a data set names such a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.reference_names import missing

#: A slot's name and its values.
Slot = tuple[str, list[Any]]
#: What one row becomes.
Row = Sequence[Slot]


class DataGenerator:
    """Reads rows, and writes samples; a child class says in `generate_sample` what a row becomes.

    Attributes:
        batch_size_: samples that `generate_batch` gets at once, 32 unless `set_batch` says otherwise.
    """

    def __init__(self) -> None:
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Say how many samples `generate_batch` gets at once.

        Raises:
            FluidValueError: fewer than one; a ValueError.
        """
        if batch_size < 1:
            raise FluidValueError(f"set_batch: batch_size is {batch_size}, must be at least 1")
        self.batch_size_ = batch_size

    def run_from_memory(self) -> None:
        """Write the samples that `generate_sample(None)` gives to standard output."""
        self._write(self.generate_sample(None)())

    def run_from_stdin(self) -> None:
        """Write the samples of all lines of standard input to standard output."""
        self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def _write(self, samples: Iterable[Row | None]) -> None:
        kept: list[Row] = []
        for sample in samples:
            if sample is not None:
                kept.append(sample)
            if len(kept) == self.batch_size_:
                self._write_batch(kept)
                kept = []
        if kept:
            self._write_batch(kept)

    def _write_batch(self, samples: list[Row]) -> None:
        for sample in self.generate_batch(samples)():
            sys.stdout.write(self._gen_str(sample))

    def _gen_str(self, line: Row) -> str:
        """Return a sample as a line.

        Raises:
            NotImplementedError: the class does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how a line is written: use MultiSlotDataGenerator")

    def generate_sample(self, line: str | None) -> Callable[[], Iterator[Row | None]]:
        """Return a function that goes through the samples of a line; None stands for no sample. A child class defines it.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no generate_sample: return a generator of [(name, [value, ...]), ...]")

    def generate_batch(self, samples: list[Row]) -> Callable[[], Iterator[Row]]:
        """Return a function that goes through the samples of a batch; a child class may change them, as with padding."""
        return lambda: iter(samples)


class MultiSlotStringDataGenerator(DataGenerator):
    """Writes values that are texts already: `[("words", ["19", "26"]), ("label", ["1"])]` becomes `2 19 26 1 1`."""

    def _gen_str(self, line: Row) -> str:
        slots = _slots(line)
        return " ".join(" ".join([str(len(values)), *values]) for _, values in slots) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Writes numbers: `[("words", [19, 26]), ("label", [1])]` becomes `2 19 26 1 1`. All samples have the slots of the first."""

    def __init__(self) -> None:
        super().__init__()
        self._proto_info: list[tuple[str, str]] | None = None

    def _gen_str(self, line: Row) -> str:
        slots = _slots(line)
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name, _ in slots]
        known = [name for name, _ in self._proto_info]
        if [name for name, _ in slots] != known:
            raise FluidValueError(f"a sample has the slots {[name for name, _ in slots]}, the first one has {known}")
        for i, (name, values) in enumerate(slots):
            if not isinstance(values, list) or not values:
                raise FluidValueError(f"slot '{name}' has the values {values!r:.60}", hint="a list that is not empty: pad it")
            if not all(isinstance(v, (int, float)) for v in values):
                hint = "numbers; MultiSlotStringDataGenerator takes texts"
                raise FluidValueError(f"slot '{name}' has the values {values!r:.60}", hint=hint)
            if any(isinstance(v, float) for v in values):
                self._proto_info[i] = name, "float"
        return " ".join(" ".join(map(str, [len(values), *values])) for _, values in slots) + "\n"


def _slots(line: Any) -> Row:
    """Return a sample.

    Raises:
        FluidTypeError: it is no list or tuple of names and values; a TypeError.
    """
    if isinstance(line, zip):  # a list in Python 2, for which scripts were written
        line = list(line)
    if not isinstance(line, (list, tuple)) or not all(isinstance(s, (list, tuple)) and len(s) == 2 and isinstance(s[0], str) for s in line):
        raise FluidTypeError(f"a sample is {line!r:.60}", hint='a list such as [("words", [19, 26]), ("label", [1])]')
    return line


__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]
__getattr__ = missing("fluid.incubate.data_generator", lambda: globals())
