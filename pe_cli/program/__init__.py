"""Programs: what is computed, as a list of operators over named variables; and what is derived from them."""

from pe_cli.program import sparse as sparse  # its rule holds for every program
