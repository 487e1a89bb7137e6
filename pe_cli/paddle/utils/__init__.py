"""utils: what scripts ask of the package itself."""

from __future__ import annotations

from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.flags import require_version
from pe_cli.paddle.fluid.install_check import run_check
from pe_cli.paddle.reference_names import missing, places

__all__ = ["require_version", "run_check", "unique_name"]
places(__name__, {"unique_name": unique_name.__name__})
__getattr__ = missing("paddle.utils", lambda: globals())
