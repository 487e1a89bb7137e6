"""The command line and a small config, as tests of commands have them."""

from tests.cli.conftest import config, pe

__all__ = ["config", "pe"]
