"""Every config that is shipped, exported and imported again, says the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.execute.executor import Executor
from pe_cli.io.onnx.export import export
from pe_cli.program.prune import prune
from pe_cli.session.importing.define import ImportWish, read_model
from tests.io.test_onnx import CONFIGS, NO_NOISE, trained_a_little
from tests.rotation import of_today
from tests.session.importing.test_onnx import computed

#: Configs whose exported graph is refused: what the error says of the node. Rows of texts of any length stand one behind the other, and how
#: many there are, or how many boxes are left of overlapping ones, only a step tells: no layer has such sizes in the middle of a model.
REFUSED = {
    "bert": "RandomUniformLike.* has no layer",
    "faster_rcnn": "GatherND.* sizes that are not known",
    "reviews": r"GreaterOrEqual.* the shape \[-1, -1\]",
    "roles": r"GreaterOrEqual.* the shape \[-1, -1\]",
    "ssd": "If.* is computed from what is fed",
    "topics": r"GreaterOrEqual.* the shape \[-1, -1\]",
    "topics_async": r"GreaterOrEqual.* the shape \[-1, -1\]",
    "yolo": "If.* is computed from what is fed",
}


def test_what_is_refused_is_shipped() -> None:
    assert REFUSED.keys() <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize("path", of_today([pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in CONFIGS], 6))
def test_an_exported_config_is_imported_with_the_same_outputs(path: Path, tmp_path: Path) -> None:
    job = trained_a_little(path)
    names = [name for name in job.built.fetches.values() if job.built.eval.global_block().var(name).shape[:1] == (-1,)]
    names = NO_NOISE.get(path.stem) or names or list(job.built.fetches.values())
    program = prune(job.built.eval, names)
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    file = tmp_path / "m.onnx"
    file.write_bytes(export(job.built.eval, held, names, "model"))
    if path.stem in REFUSED:
        with pytest.raises(PeError, match=REFUSED[path.stem]) as caught:
            read_model(ImportWish(file))
        assert caught.value.code == ExitCode.DATA
        return
    feed = next(iter(job.data.loader("train" if job.built.train else "eval", program, job.batch_size).epoch(0)))
    values = Executor(program, job.scope, seed=1, constants=job.data.constants()).run([feed] * len(job.places), names).values[0]
    model = read_model(ImportWish(file))
    again = computed(model, tmp_path / "made", {name: feed[name] for name in model.feeds})
    for name, value in zip(names, again, strict=True):
        np.testing.assert_allclose(value, values[name], rtol=1e-5, atol=1e-5, err_msg=name)
