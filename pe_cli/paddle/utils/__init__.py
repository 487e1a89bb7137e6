"""utils: what scripts ask of the package itself."""

from __future__ import annotations

from pe_cli.paddle.fluid.flags import require_version
from pe_cli.paddle.fluid.install_check import run_check
from pe_cli.paddle.reference_names import missing

__all__ = ["require_version", "run_check"]
__getattr__ = missing("paddle.utils", lambda: globals())
