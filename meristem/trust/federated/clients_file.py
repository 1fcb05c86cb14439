"""clients.yaml: the clients of a federation and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.config.errors import RecipeError
from meristem.config.overrides import parse_overrides
from meristem.config.validation import build_settings
from meristem.trust.federated.settings import FederatedClientSettings, FederatedSettings, SuperLinkSettings
from meristem.utils import untrusted_files

SECTION = "federated"
"""Prefix of the settings of the federation on the command line: federated.dropout=0.3."""
SHAPE = "a list of clients ({name, source}), or a mapping with clients, and perhaps federated and superlink"


@dataclass(frozen=True, kw_only=True)
class Federation:
    """The clients of a federation, its settings, and the SuperLink if the clients are nodes."""

    clients: tuple[FederatedClientSettings, ...]
    settings: FederatedSettings
    superlink: SuperLinkSettings | None = None

    @property
    def names(self) -> list[str]:
        """The clients' names, sorted: the order in which updates are summed."""
        return sorted(client.name for client in self.clients)

    def client(self, name: str) -> FederatedClientSettings:
        """The settings of one client."""
        return next(client for client in self.clients if client.name == name)


def read_federation(path: Path, overrides: Mapping[str, Any] | None = None) -> Federation:
    """The federation in a YAML file; `overrides` are settings of its section `federated`."""
    if not path.is_file():
        raise RecipeError(f"{path}: no such file; the clients are {SHAPE}")
    loaded = untrusted_files.read_yaml(path)
    values = {"clients": loaded} if isinstance(loaded, list) else loaded
    if not isinstance(values, dict) or not isinstance(values.get("clients"), list) or not values["clients"]:
        raise RecipeError(f"{path}: expected {SHAPE}")
    if unknown := [key for key in values if key not in ("clients", SECTION, "superlink")]:
        raise RecipeError(f"{path}: {unknown[0]}: unknown section; expected {SHAPE}")
    clients = tuple(_parse_client(entry, f"{path}: clients.{number}") for number, entry in enumerate(values["clients"]))
    settings = build_settings(FederatedSettings, _merged(values.get(SECTION) or {}, overrides or {}), SECTION)
    superlink = build_settings(SuperLinkSettings, values["superlink"], "superlink") if "superlink" in values else None
    federation = Federation(clients=clients, settings=settings, superlink=superlink)
    _check_federation(federation, path)
    return federation


def _parse_client(entry: Any, place: str) -> FederatedClientSettings:
    if not isinstance(entry, dict):
        raise RecipeError(f"{place}: a client is a mapping such as {{name: anna, source: anna/}}")
    return build_settings(FederatedClientSettings, entry, place)


def _merged(values: Any, overrides: Mapping[str, Any]) -> Any:
    """A mapping with overrides of it and of the mappings in it."""
    if not isinstance(values, dict):
        return values
    return values | {
        key: _merged(values.get(key) or {}, value) if isinstance(value, Mapping) else value
        for key, value in overrides.items()
    }


def _check_federation(federation: Federation, path: Path) -> None:
    """Raise on clients that cannot form a federation."""
    names, settings = federation.names, federation.settings
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise RecipeError(f"{path}: two clients are called {doubled[0]}; each needs a name of its own")
    if settings.min_clients > len(names):
        raise RecipeError(
            f"federated.min_clients: {settings.min_clients} answers are needed and {path} has {len(names)} "
            f"client{'s' * (len(names) > 1)}; set federated.min_clients={len(names)} or add clients"
        )
    without_source = [client.name for client in federation.clients if client.source is None]
    if federation.superlink is None and without_source:
        raise RecipeError(
            f"{path}: {without_source[0]} has no source; name the owner's text, or give the superlink that its node "
            "is connected to"
        )
    if federation.superlink is not None and len(without_source) < len(names):
        raise RecipeError(
            f"{path}: with a superlink each owner's node knows its own text; remove source from the clients"
        )
    if settings.privacy is not None and (weighted := [client.name for client in federation.clients if client.weight]):
        raise RecipeError(
            f"{path}: {weighted[0]} has a weight, and with federated.privacy all updates count the same, since one of "
            "larger weight would need more noise; remove weight"
        )
    if settings.secure_aggregation and len(names) < 3:
        raise RecipeError(
            f"federated.secure_aggregation: with {len(names)} clients each can subtract its own update from the sum; "
            "it needs at least 3 clients"
        )


def split_federated_overrides(overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Overrides of the recipe, settings of the federation, and `tokenizer.source`, the public sample."""
    recipe: dict[str, Any] = {}
    federated: dict[str, Any] = {}
    sample: str | None = None
    for key, value in parse_overrides(overrides).items():
        section, _, name = key.partition(".")
        if key == "tokenizer.source":
            sample = str(value)
        elif section == SECTION and name:
            _set_nested(federated, name.split("."), value)
        else:
            recipe[key] = value
    return recipe, federated, sample


def _set_nested(mapping: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        mapping = mapping.setdefault(name, {})
    mapping[path[-1]] = value
