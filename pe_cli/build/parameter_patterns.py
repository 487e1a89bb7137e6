"""Selects parameters by patterns of their names and of the layers that read them."""

from __future__ import annotations

from collections import defaultdict

from pe_cli.config.error_collector import Mistakes
from pe_cli.core.errors import Span
from pe_cli.core.patterns import matches, nearest
from pe_cli.program.ir import Operator, Parameter, Program
from pe_cli.program.region import every_op


def fits(name: str, pattern: str) -> bool:
    """Tell whether a pattern fits the name of a layer or parameter, whose parts may be written with dots, too.

    >>> fits("encoder/0/query", "*/query"), fits("encoder/0/query", "*.query"), fits("encoder/0/query", "*.key")
    (True, True, False)
    """
    return matches(name, [pattern]) or matches(name.replace("/", "."), [pattern])


class Matching:
    """The parameters of a program of forward ops.

    Args:
        program: that has them.

    Attributes:
        parameters: by name.
        readers: parameter -> the ops that read it.
        statistics: parameters that forward ops write, such as the running statistics of batch_norm; no optimizer trains them.
    """

    def __init__(self, program: Program) -> None:
        self.parameters = {p.name: p for p in program.parameters()}
        self.readers: dict[str, list[Operator]] = defaultdict(list)
        self._layers: dict[str, set[str]] = defaultdict(set)
        # Ops in the bodies of loops read parameters as well.
        for op in every_op(program):
            for name in op.input_names():
                if name in self.parameters:
                    self._layers[name].add(op.scope.strip("/"))
                    self.readers[name].append(op)
        # A parameter that a forward op writes is a running statistic.
        self.statistics = {name for op in program.top_ops for name in op.output_names() if name in self.parameters}

    def find(self, pattern: str, where: str, mistakes: Mistakes, at: Span | None) -> list[Parameter]:
        """Return the parameters that a pattern fits, in order of creation; none is a mistake.

        Args:
            pattern: of names of parameters or layers.
            where: begins the message.
            mistakes: gets it.
            at: place of the pattern.
        """
        fitting = [p for n, p in self.parameters.items() if any(fits(known, pattern) for known in (n, *self._layers[n]))]
        if not fitting:
            known = sorted({*self.parameters, *(layer for names in self._layers.values() for layer in names if layer)})
            mistakes.say(f"{where}: no parameter and no layer with parameters is called '{pattern}'", at, nearest(pattern, known))
        return fitting
