"""`python -m meristem` runs the `meristem` command."""

from meristem.cli import main

main()
