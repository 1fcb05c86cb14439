"""`python -m meristem` is `meristem`."""

from meristem.cli import main

main()
