"""A cache of plans by batch shape; for another batch size a plan is refitted."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping

from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.request import Request
from pe_cli.graph.ssa import Graph

#: Bytes by (variable, device).
Rooms = dict[tuple[str, int], int]
#: Plans kept for different batch shapes; the least recently used goes first.
MAX_PLANS = 8


class Plans(Mapping[Request, Plan]):
    """Plans by what they serve, the least recently used first.

    Args:
        make: makes one for a graph and a request, with room or None, see `Plan`.
        refits: whether plans may serve other batches than those that they were made for.
    """

    def __init__(self, make: Callable[[Graph, Request, Rooms | None], Plan], refits: bool) -> None:
        self._make = make
        self._refits = refits
        self._plans: OrderedDict[Request, Plan] = OrderedDict()
        self._used: set[Request] = set()
        self._newest: Plan | None = None  # was used last, since the used ones were counted
        self._made: Counter[int] = Counter()  # by the id of their graph

    def __getitem__(self, request: Request) -> Plan:
        """Return the plan that serves a request."""
        return self._plans[request]

    def __iter__(self) -> Iterator[Request]:
        """Go over the requests that plans serve."""
        return iter(self._plans)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._plans)

    def use(self, request: Request) -> Plan | None:
        """Return the plan that serves a request, which is used now; None where there is none."""
        # Nearly every step: the same request object needs no hash of all its types.
        # Compared by identity first, because a training loop asks for the same shape again and again.
        if self._newest is not None and self._newest.request is request:
            return self._newest
        found = self._plans.get(request)
        if found is not None:
            self._used.add(request)
            self._plans.move_to_end(request)
            self._newest = found
        return found

    def new(self, request: Request, graph: Graph) -> Plan:
        """Return a plan for a request that none serves: that of another batch, refitted, or a new one. It is not kept yet."""
        found = self._refitted(request, graph)
        if found is not None:
            return found
        self._made[id(graph)] += 1
        # A plan with room costs memory for all of its life; only where a third shape comes is it likely that shapes go on changing.
        roomy = self._refits and self._made[id(graph)] > 2  # a last, smaller batch is no reason yet
        return self._make(graph, request, self._rooms(graph) if roomy else None)

    def _rooms(self, graph: Graph) -> Rooms:
        """Return the bytes that variables have in any plan of a graph: of batches of many rows and of long sequences, both fit later."""
        found: Rooms = {}
        for plan in self._plans.values():
            if plan.graph is graph:
                for at, nbytes in plan.rooms().items():
                    found[at] = max(nbytes, found.get(at, 0))
        return found

    def keep(self, plan: Plan) -> None:
        """Keep a plan for what it serves, and forget the least recently used where there are too many."""
        self._plans[plan.request] = plan
        self._used.add(plan.request)
        while len(self._plans) > MAX_PLANS:
            self._forget(next(iter(self._plans)))

    def _refitted(self, request: Request, graph: Graph) -> Plan | None:
        """Refit a plan with enough memory to a request; it no longer serves its earlier one.

        One that was refitted before knows what such sizes were lowered to: it goes from shape to shape, and the others keep theirs. Where
        there is none, the least recently used plan begins to.

        Returns:
            None while there is room for one more plan, and where none does it.
        """
        if not self._refits:
            return None
        oldest = [plan for plan in self._plans.values() if plan.graph is graph]
        moving = [plan for plan in reversed(oldest) if plan.refitted]
        # A plan of its own fits a batch best, as long as it is not known that there are too many.
        if not moving and len(self._plans) < MAX_PLANS:
            return None
        plan = next((plan for plan in (*moving, *oldest) if plan.holds(request)), None)
        if plan is None:
            return None
        # It is forgotten before it is refitted: a plan that was changed and then failed must not serve its old request.
        self._forget(plan.request)
        return plan if plan.fit(request) else None

    def clear(self) -> None:
        """Forget all plans and their temporaries."""
        self._plans.clear()
        self._used.clear()
        self._newest = None

    def clear_unused(self) -> None:
        """Forget the plans that have not been used since this was last called."""
        for request in [r for r in self._plans if r not in self._used]:
            self._forget(request)
        self._used.clear()
        self._newest = None

    def _forget(self, request: Request) -> None:
        del self._plans[request]
        self._used.discard(request)
        self._newest = None
