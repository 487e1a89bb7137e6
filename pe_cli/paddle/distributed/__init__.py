"""distributed: `python -m pe_cli.paddle.distributed.launch` and `launch_ps` start the processes of a script."""

from __future__ import annotations

from pe_cli.paddle.names import missing

__getattr__ = missing("paddle.distributed", lambda: ("launch", "launch_ps"))
