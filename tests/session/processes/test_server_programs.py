"""Programs of trainers and servers of a config, to look at."""

from __future__ import annotations

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.errors import PeError
from pe_cli.program.parse import parse_program
from pe_cli.program.serialize import from_json, to_json
from pe_cli.program.text import print_program
from pe_cli.session.processes.server_programs import flat, role_program
from tests.session.conftest import Bench
from tests.session.processes.test_server_training import TABLE_CONFIG, TABLE_MODEL

SERVED = "distributed={mode: parameter_server, servers: 2, min_block_size: 4}"


def built(bench: Bench, *overrides: str):
    (bench.base / "model.yaml").write_text(TABLE_MODEL)
    (bench.base / "run.yaml").write_text(TABLE_CONFIG.replace("RUNS", "runs"))
    run, programs = load_and_build(bench.base / "run.yaml", overrides)
    return programs, run


@pytest.mark.parametrize("more", ["", ", sync: async", ", sync: {geo: 10}"])
@pytest.mark.parametrize("role", ["trainer", "server"])
def test_their_text_and_json_are_read_back(bench: Bench, role: str, more: str) -> None:
    program = role_program(*built(bench, SERVED.replace("}", more + "}", 1)), role, 4, 1)
    text = print_program(program)
    assert print_program(parse_program(text)) == text
    assert print_program(from_json(to_json(program))) == text


def test_a_trainer_fetches_rows_and_sends_gradients_and_a_server_has_a_block_for_each_piece(bench: Bench) -> None:
    programs, run = built(bench, SERVED)
    trainer = [op.type for op in role_program(programs, run, "trainer", None, 0).global_block().ops]
    assert trainer.count("distributed_lookup_table") == 2
    assert not {"lookup_table", "adam"} & set(trainer)
    assert [t for t in trainer if t in ("send", "send_barrier", "recv", "fetch_barrier", "adam")] == [
        *["send"] * 4, "send_barrier", *["recv"] * 2, "fetch_barrier",
    ]  # fmt: skip
    server = role_program(programs, run, "server", None, 0)
    assert [[op.type for op in block.ops][-1] for block in server.blocks] == ["listen_and_serv", *["adam"] * (server.num_blocks - 1)]
    assert len(flat(server).global_block().ops) == sum(len(block.ops) for block in server.blocks)


def test_what_is_not_there_is_named(bench: Bench) -> None:
    programs, run = built(bench)
    with pytest.raises(PeError, match="--role is for configs that train with parameter servers"):
        role_program(programs, run, "server", None, 0)
    programs, run = built(bench, SERVED)
    for role, processes, number in (("server", None, 2), ("trainer", 3, 1), ("trainer", 2, 0)):
        with pytest.raises(PeError, match=f"there is no {role} {number}"):
            role_program(programs, run, role, processes, number)
