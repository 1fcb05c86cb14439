"""`python -m meristem` runs the `meristem` command."""

from meristem.cli.app import main

main()
