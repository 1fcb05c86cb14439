"""Federated training with nodes of a running Flower SuperLink: submits the app and waits for its end.

The server part runs at the SuperLink, so the command is given on its machine, and the run folder is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.run_folder import RunFolder, move_aside
from meristem.config.errors import MeristemError
from meristem.training.run_result import RunResult
from meristem.trust.federated.federate import FederatedPlan, FederatedRequest
from meristem.trust.federated.flower_app import REQUEST, request_to_json
from meristem.trust.federated.settings import SuperLinkSettings

CONNECTION = "meristem"
APP_CODE = '''"""Federated training of Meristem: its own installation at each node does the work."""

from meristem.trust.federated.flower_app import client_app, server_app

__all__ = ["client_app", "server_app"]
'''
MAX_LOG_LINES = 12


def run_on_superlink(plan: FederatedPlan, request: FederatedRequest, console: Console) -> RunResult:
    """Submit the run, show its log, and return its result once it is finished."""
    superlink = plan.federation.superlink
    assert superlink is not None
    out = plan.out
    if request.fresh and out.exists():
        console.print(f"The old run is kept as {move_aside(out)}", highlight=False, markup=False, soft_wrap=True)
    request = replace(request, out=out, fresh=False)
    with tempfile.TemporaryDirectory(prefix="meristem-flower-") as folder:
        app, home = Path(folder) / "app", Path(folder) / "home"
        write_app(app, request)
        write_connection(home, superlink)
        command = [str(Path(sys.executable).with_name("flwr")), "run", str(app), CONNECTION, "--stream"]
        environment = {**os.environ, "FLWR_HOME": str(home)}
        lines = _stream(command, environment, console)
    record = RunFolder(out).finish_record
    if record is None:
        raise MeristemError(
            f"{out}: the federated run did not finish; the same command resumes it. The last lines of its log:\n"
            + "\n".join(lines[-MAX_LOG_LINES:])
        )
    return RunResult(
        run=out,
        step=int(record["step"]),
        metrics=dict(record.get("validation") or {}),
        test={},
        used=dict(record.get("used") or {}),
        example_commands=[],
    )


def write_app(folder: Path, request: FederatedRequest) -> None:
    """The Flower app: a few lines that name the code in the installed package, and the command."""
    folder.mkdir(parents=True)
    (folder / "federated_app.py").write_text(APP_CODE, encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        "\n".join(
            [
                "[project]",
                'name = "meristem-federated"',
                'version = "1.0.0"',
                'description = "Federated training of a language model"',
                'license = "Apache-2.0"',
                "dependencies = []",
                "",
                "[tool.flwr.app]",
                'publisher = "meristem"',
                "",
                "[tool.flwr.app.components]",
                'serverapp = "federated_app:server_app"',
                'clientapp = "federated_app:client_app"',
                "",
                "[tool.flwr.app.config]",
                f"{REQUEST} = {_toml_string(request_to_json(request))}",
                "",
            ]
        ),
        encoding="utf-8",
    )


def write_connection(home: Path, superlink: SuperLinkSettings) -> None:
    """Flower's configuration with the address of the SuperLink and the certificate to check it with."""
    home.mkdir(parents=True)
    if not superlink.insecure and superlink.root_certificates is None:
        raise MeristemError(
            "superlink.root_certificates: missing; name the certificate that the SuperLink's was signed with"
        )
    security = (
        "insecure = true"
        if superlink.insecure
        else f"root-certificates = {_toml_string(str(Path(str(superlink.root_certificates)).resolve()))}"
    )
    lines = [
        "[superlink]",
        f'default = "{CONNECTION}"',
        "",
        f"[superlink.{CONNECTION}]",
        f"address = {_toml_string(superlink.address)}",
        security,
        "",
    ]
    (home / "config.toml").write_text("\n".join(lines), encoding="utf-8")


def _toml_string(text: str) -> str:
    """A TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _stream(command: list[str], environment: dict[str, str], console: Console) -> list[str]:
    """Run a command and show its lines as they come; returns them."""
    lines = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            console.print(lines[-1], highlight=False, markup=False, soft_wrap=True)
    return lines
