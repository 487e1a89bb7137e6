"""GeoSgdTranspiler: trainers train by themselves, and now and then send what they have learned."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import TensorType
from pe_cli.graph.servers.blocks import add, control, declare
from pe_cli.graph.servers.geo import geo_server
from pe_cli.graph.servers.server_program import Kept
from pe_cli.graph.servers.trainer_program import Job, cut, deal, edit_startup, remote_tables
from pe_cli.graph.servers.update_ops import Updates
from pe_cli.ops.define.traits import Table
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import default_main_program, default_startup_program
from pe_cli.paddle.fluid.transpiler.config import DistributedMode, DistributeTranspilerConfig
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import DistributeTranspiler, checked_trainer, endpoints_of
from pe_cli.program import ir


class GeoSgdTranspiler(DistributeTranspiler):
    """Cuts a program for trainers that update by themselves and send the difference every `geo_sgd_need_push_nums` steps.

    Args:
        config: default: all defaults.

    Attributes:
        param_opt_ep_mapping: host:port -> {"params": variables}, of each server.
        vars_info: parameter -> its blocks, their rows and servers, and whether its gradient is row-sparse.
        trainer_startup_program: the startup program, which takes first values from servers; those of row-sparse tables are taken when a
            `Communicator` starts.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        super().__init__(config)
        self.distributed_mode = DistributedMode.GEO
        self.param_opt_ep_mapping: dict[str, dict[str, list[ir.Variable]]] = {}
        self.vars_info: dict[str, dict[str, list[str]]] = {}

    def transpile(
        self,
        trainer_id: int,
        program: ir.Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = False,
        startup_program: ir.Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Cut a program, in place; its updates stay. Arguments of `DistributeTranspiler.transpile`; sync_mode has no effect."""
        self.origin_program = default_main_program() if program is None else program
        self.startup_program = default_startup_program() if startup_program is None else startup_program
        self.origin_startup_program = self.startup_program.clone()
        self.pserver_endpoints = endpoints_of(pservers)
        self.trainer_id, self.trainer_num, self.sync_mode = checked_trainer(trainer_id, trainers), trainers, False
        self._job = Job(trainer_id, int(trainers), self.pserver_endpoints, False)
        with raised_as(FluidValueError):
            self._updates = Updates(self.origin_program)
        self._cut = cut(self._updates, self._job, self.config.min_block_size, slices=True)
        deal(self._cut, self.config.split_method(self.pserver_endpoints), None)
        self._declare()
        block = self.origin_program.global_block()
        # The op names the ids that a step looks up, by which the communicator knows what rows of a table to send.
        attrs = {"send_varnames": self._tables(), "trainer_id": trainer_id}
        add(block, "send", {"X": self._ids()}, {"Out": [control(block)]}, attrs)
        self.trainer_startup_program = self._edit_startup()
        self.param_opt_ep_mapping = {
            e: {"params": [block.vars[p.name] for p in self._cut.at(e)]} for e in self.pserver_endpoints
        }
        self.param_grad_ep_mapping = self.param_opt_ep_mapping

    def _declare(self) -> None:
        """Declare blocks, and the differences that are sent for them."""
        block = self.origin_program.global_block()
        for name, pieces in self._cut.pieces.items():
            u = self._updates.parameters[name]
            declare(block, f"{name}.delta", u.type)
            for p in pieces:
                declare(block, p.name, p.type)
                declare(block, f"{p.name}.delta", p.type)
            self.vars_info[name] = {
                "var_names": [p.name for p in pieces],
                "sections": [str(p.rows) for p in pieces],
                "epmap": self._cut.servers(name),
                "is_sparse": [str(u.rows is not None)],
            }

    def _lookups(self) -> list[tuple[str, str]]:
        """Return (ids, table) of all lookups of tables with row-sparse gradients, each once."""
        sparse = {u.name for u in self._updates.parameters.values() if u.rows}
        ops = [op for op in self.origin_program.global_block().ops if op.definition.has(Table) and op.inputs["W"][0] in sparse]
        return list(dict.fromkeys((op.inputs["Ids"][0], op.inputs["W"][0]) for op in ops))

    def _ids(self) -> list[str]:
        return [ids for ids, _ in self._lookups()]

    def _tables(self) -> list[str]:
        return [table for _, table in self._lookups()]

    def _edit_startup(self) -> ir.Program:
        startup = self.startup_program
        edit_startup(startup, self._cut, self._job, remote_tables(self.origin_program, self._updates))
        block = startup.global_block()
        for name in self._cut.pieces:
            declare(block, f"{name}.delta", self._updates.parameters[name].type)
        declare(block, "param_init", TensorType((), "bool"), persistable=True)
        attrs = {"send_varnames": ["param_init"], "trainer_id": self.trainer_id}
        add(block, "send", {"X": ["param_init"]}, {"Out": [control(block)]}, attrs)
        return startup

    def _get_vars_info(self) -> dict[str, Any]:
        return self.vars_info

    def get_trainer_program(self, wait_port: bool = True) -> ir.Program:
        """Return the trainer's program; see `DistributeTranspiler.get_trainer_program`."""
        self._check_transpiled("get_trainer_program")
        if wait_port and self.config.wait_port:
            self.wait_for_servers()
        return self.origin_program

    def get_pserver_program(self, endpoint: str) -> ir.Program:
        """Return the program of a server, which adds differences to parameters."""
        self._check_transpiled("get_pserver_program", endpoint)
        return self._server(endpoint)[0]

    def _server(self, endpoint: str) -> tuple[ir.Program, list[Kept]]:
        return geo_server(self.origin_program, self._job, self._cut, endpoint)


__all__ = ["GeoSgdTranspiler"]
