"""What tests of execution look at."""

from __future__ import annotations

from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan


def latest(executor: Executor) -> Plan:
    """Return the plan that an executor used last."""
    *_, plan = executor.plans.values()
    return plan
