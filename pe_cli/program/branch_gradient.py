"""The gradient of a cond: a cond whose branches run the forward ops that their gradients need once more."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import forward_name
from pe_cli.program.ir import Program, Role
from pe_cli.program.outline import copied
from pe_cli.program.region import Region
from pe_cli.program.region_gradient_parts import RegionGradient, flows, given_gradient, keep_only, own_variable


class BranchGradient(RegionGradient):
    """The gradient of a cond: in each branch its forward ops, then their gradient ops."""

    def append(self) -> None:
        """Append it.

        Raises:
            PeError: the branches give results of other shapes.
        """
        op = self.op
        if op.attrs.get("varying"):
            raise PeError(
                "no gradients flow through a branch whose results have other shapes",
                at=op.at,
                hint="give tensors of one shape from both, or end the gradients before it: stop_gradient",
            )
        original = list(op.inputs.get("Captured", []))
        self.captured = [self._before(n) for n in original]
        outs = [(i, n) for i, n in enumerate(op.outputs["Out"]) if n in self.grads]
        places = [i for i, n in enumerate(original) if n in self.wanted]
        yes, no = (self._region(op.attrs[name], places, [i for i, _ in outs]) for name in ("yes", "no"))
        captured = [*self.captured, *(self.grads[n] for _, n in outs)]
        made = [self.part(original[i]) for i in places]
        ins = {"Condition": op.inputs["Condition"], "Captured": captured}
        self.block.append_op("cond", ins, {"Out": made}, {"yes": yes, "no": no}, at=op.at)
        self.join()

    def _before(self, name: str) -> str:
        """Return what a captured variable was when the op ran: a copy where the op overwrites it."""
        # The gradient runs later: a variable that the branch overwrites would have its new value by then.
        if name not in self.op.output_names():
            return name
        made = self.block.program.unique(f"{name}@BEFORE")
        self.block.append_op("assign", {"X": name}, {"Out": made}, index=self.block.ops.index(self.op))
        slots = self.op.inputs
        slots["Captured"] = [made if n == name else n for n in slots["Captured"]]
        return made

    def _region(self, region: Region, places: Sequence[int], outs: Sequence[int]) -> Region:
        made: Program = region.program.clone()
        inner = made.main_block
        targets = [region.args[i] for i in places]
        active = {a for a in targets if flows(inner.vars[a])}
        with made.role(Role.BACKWARD):
            return self._made(region, made, targets, active, outs)

    def _made(self, region: Region, made: Program, targets: Sequence[str], active: set[str], outs: Sequence[int]) -> Region:
        inner = made.main_block
        starts = {region.results[i]: given_gradient(inner, region.results[i]) for i in outs}
        reach = self.walk(inner, active).reachable(list(inner.ops))
        flowing = {r: s for r, s in starts.items() if r in reach}
        found = self.walk(inner, active).run(list(flowing), list(flowing.values())) if flowing else {}
        results: list[str] = []
        for a in targets:
            own = own_variable(inner, found.get(a), a, [*starts.values()])
            # Two arguments may have one gradient, and a result is written once.
            results.append(copied(inner, own) if own in results else own)
        needed, kept = set(results), []
        for o in reversed(inner.ops):
            # Only those forward ops are done again that the gradient reads.
            if needed & set(o.output_names()):
                kept.append(o)
                needed |= set(o.input_names())
                if o.definition.is_grad_of:
                    needed |= {forward_name(n) for n in o.output_names()}
        args = (*region.args, *starts.values())
        keep_only(inner, kept[::-1], args)
        return Region(made, args, tuple(results))
