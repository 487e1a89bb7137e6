"""python -m pe_cli is pe."""

from pe_cli.cli.main import main

main()
