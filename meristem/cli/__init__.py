"""The command line, one module per group of commands; heavy dependencies are imported inside the commands."""

from meristem.cli.app import main

__all__ = ["main"]
