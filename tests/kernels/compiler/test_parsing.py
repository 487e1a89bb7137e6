"""Several threads that parse texts of kernels: without a lock, Python 3.11 fails."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

from pe_cli.kernels.compiler.parsing import expression, statements

TEXT = "if a:\n    b = [f(x, (y + 1) * 2) for x in range(3)]\n" * 40


def test_threads_parse_beside_each_other():
    before = gc.get_threshold()

    def let_others_go_on(*_: object) -> None:
        time.sleep(0)

    gc.set_threshold(5)
    gc.callbacks.append(let_others_go_on)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: ast.unparse(statements(TEXT)[i % 40]), range(64)))
            assert set(found) == {found[0]}
            assert {ast.unparse(e) for e in pool.map(expression, ["(a + b) * c"] * 64)} == {"(a + b) * c"}
    finally:
        gc.callbacks.remove(let_others_go_on)
        gc.set_threshold(*before)
