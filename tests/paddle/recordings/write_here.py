"""Writes the models of `loops.py` and `written.py` here: `python -m tests.paddle.recordings.write_here FILES [NAME ...]`.

What 1.8.5 has loaded and run without a difference (`python -m tests.paddle.recordings.written FOLDER FILES`) is kept:
`FILES/NAME/__model__` as `written/NAME.model`, and `FOLDER/NAME.npz` as `written/NAME.npz`.
"""

import sys
from pathlib import Path

import pe_cli.paddle.fluid as fluid
from tests.paddle.recordings.loops import MODELS, build
from tests.paddle.recordings.written import WRITTEN


def write(folder: Path, name: str) -> tuple[fluid.Executor, dict]:
    """Write one model, and return an executor and what it is fed."""
    executor, program, fed, outputs = build(fluid, name, {**MODELS, **WRITTEN})
    fluid.io.save_inference_model(str(folder), list(fed), outputs, executor, program, params_filename="params")
    # For 1.8.5, which reads them by `Program.parse_from_string`.
    (folder / "program").write_bytes(program.desc.serialize_to_string())
    (folder / "fetches").write_text(" ".join(v.name for v in outputs))
    return executor, fed


def main() -> None:
    """Write them."""
    for name in sys.argv[2:] or [*MODELS, *WRITTEN]:
        with fluid.scope_guard(fluid.Scope()):
            write(Path(sys.argv[1]) / name, name)


if __name__ == "__main__":
    main()
