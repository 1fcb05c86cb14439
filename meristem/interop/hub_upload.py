"""Publishing a run on the Hugging Face hub: exported for transformers, with a model card, in one commit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meristem
from meristem.config.errors import MeristemError
from meristem.interop.card_metadata import CardOptions
from meristem.interop.export_folder import ExportResult, export_run
from meristem.interop.hub_weights import HUB_NAME, SCHEME, huggingface_hub_module
from meristem.utils.result_tables import Record, Tabular


@dataclass(frozen=True, kw_only=True)
class PushResult(Tabular):
    """What was published, or with `dry_run` would be."""

    name: str
    url: str
    files: dict[str, int]
    """File → bytes."""
    card: str
    private: bool
    dry_run: bool
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PushResult({self.summary().splitlines()[0]})"

    def records(self) -> list[Record]:
        """One row per file, with its size in bytes."""
        return [{"file": name, "bytes": size} for name, size in self.files.items()]

    def summary(self) -> str:
        """A few lines for the command line; a dry run shows the files and the card's metadata."""
        size = sum(self.files.values()) / 1e6
        kind = "private" if self.private else "public"
        if not self.dry_run:
            return "\n".join([f"{self.url} ({kind}): {len(self.files)} files, {size:.1f} MB", *self.notes])
        lines = [f"would publish {len(self.files)} files, {size:.1f} MB, as {kind} {self.url}"]
        lines += [f"{size_bytes:>14,}  {file}" for file, size_bytes in sorted(self.files.items())]
        return "\n".join([*lines, *self.notes, "", "The card begins with", "", self.card.split("\n---\n")[0] + "\n---"])


def push_run(
    run: Path,
    name: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    options: CardOptions | None = None,
    architecture: str | None = None,
    drop_crf: bool = False,
) -> PushResult:
    """Export the run and upload it as a model of the hub; a repository of that name gets one more commit."""
    name = name.removeprefix(SCHEME)
    if not HUB_NAME.fullmatch(name) or "/" not in name:
        raise MeristemError(f"{name}: a model of the hub is named OWNER/NAME")
    hub, options = huggingface_hub_module(), options or CardOptions()
    if not dry_run and hub.get_token() is None:
        raise MeristemError("the hub needs a token: run `hf auth login`, or set HF_TOKEN; --dry-run needs none")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name.rpartition("/")[2]
        exported = export_run(run, folder, architecture=architecture, drop_crf=drop_crf, card_options=options)
        if not (folder / "config.json").is_file():
            raise MeristemError(f"{run}: the hub's models are those of transformers, which has none of this family")
        url = f"{hub.constants.ENDPOINT}/{name}" if dry_run else _upload(hub, folder, name, private=private)
        return PushResult(
            name=name,
            url=url,
            files={str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()},
            card=(folder / "README.md").read_text(encoding="utf-8"),
            private=private,
            dry_run=dry_run,
            notes=_notes(exported, options),
        )


def _upload(hub: Any, folder: Path, name: str, *, private: bool) -> str:
    """The address of the repository, after its commit."""
    api = hub.HfApi(library_name="meristem", library_version=meristem.__version__)
    try:
        url = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Trained with Meristem")
    except Exception as error:  # transports raise arbitrary exceptions
        reason = " ".join(str(error).split()) or type(error).__name__
        raise MeristemError(f"{name} could not be published at {hub.constants.ENDPOINT}: {reason:.300}") from None
    return str(url)


def _notes(exported: ExportResult, options: CardOptions) -> tuple[str, ...]:
    missing = [] if options.license else ["no license is stated, so nobody may use the model: --license apache-2.0"]
    return (*exported.notes, *missing)
