"""What static programs of 2.x make of themselves: run by PaddlePaddle 2.6.2 (`python -m tests.paddle.recordings.static_programs FILE`)."""

import json
import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Record into a file, a line each program."""
    import paddle

    from tests.paddle import further_static_programs
    from tests.paddle.static_programs import PROGRAMS, run

    paddle.enable_static()
    assert set(further_static_programs.__all__) < set(PROGRAMS)
    lines = []
    for name in PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            found, _ = run(paddle, name, Path(folder))
        rounded = json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.8g}"))
        lines.append(f" {json.dumps(name)}: {json.dumps(rounded, separators=(',', ':'))}")
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
