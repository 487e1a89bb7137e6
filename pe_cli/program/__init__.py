"""Programs: what is computed, as a list of operators over named variables; and what is derived from them."""
