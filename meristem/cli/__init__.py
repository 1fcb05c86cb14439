"""The command line, one module per group of commands; heavy dependencies are imported inside the commands."""

from typing import NoReturn

from meristem.utils import interrupts


def main() -> NoReturn:
    """Run the command; Ctrl-C while its modules are imported ends it like any later one, without a traceback."""
    interrupts.install_handler()
    try:
        from meristem.cli.app import main as run_command
    except KeyboardInterrupt:
        interrupts.announce_stop()
        raise SystemExit(130) from None
    run_command()


__all__ = ["main"]
