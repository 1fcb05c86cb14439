"""Random mutations of a run folder: bytes, tensors, safetensors headers, JSON and YAML values, tokenizers, whole files.

A mutation is a pure function of its number. Where it is `sealed`, the checkpoint's manifest is made true of the changed
files again, as somebody with bad intentions would; otherwise the manifest betrays it.

A run that resumes must be refused or end with the weights of the run that nobody changed. `CONSISTENT` mutations are
therefore left out for it, since no reader could tell them from an honest run: other finite weights, moments or memory;
one recipe or one tokenizer in all places at once, as another person's run has; a checkpoint's file in the place of
the same file of another checkpoint; and a parameter that its optimizer never met. A larger budget is left out as well.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import yaml
from hostile.artifact_files import reseal
from hostile.json_mutations import VALUES, pick, replace_value
from hostile.tokenizer_mutations import mutate_tokenizer
from torch import Tensor

from meristem.checkpoint import disk, tensors

Kind = Callable[[Path, random.Random], str]
UNTOUCHED = (".lock", "events.out")
"""Parts of names of files that no operation reads: nothing would come of changing them."""


def mutate(run: Path, number: int, *, resumed: bool = True) -> str:
    """Change one thing of a run folder; what was changed, in words. `resumed` leaves `CONSISTENT` mutations out."""
    rng = random.Random(number)
    weighted = EVERYWHERE if resumed else [*EVERYWHERE, *CONSISTENT]
    (kind,) = rng.choices([kind for kind, _ in weighted], [weight for _, weight in weighted])
    return kind(run, rng)


def copied(run: Path, folder: Path) -> Path:
    """A copy of a run to be changed."""
    return Path(shutil.copytree(run, folder, symlinks=True))


def _checkpoints(run: Path) -> list[Path]:
    return sorted(run.glob("checkpoints/step-*"))


def _files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and not any(part in p.name for part in UNTOUCHED))


# ------------------------------------------------------------ tensors


def _tensor(run: Path, rng: random.Random) -> str:
    """Another shape, type, name or a value that is not finite of one tensor, sealed."""
    return _change_tensor(run, rng, _changed)


def _finite_values(run: Path, rng: random.Random) -> str:
    """Other finite values of one tensor, sealed: very large, very small, all the same."""
    return _change_tensor(run, rng, _other_values)


def _change_tensor(
    run: Path, rng: random.Random, changes: Callable[[Tensor, random.Random], Iterator[tuple[str, Tensor | None]]]
) -> str:
    folder = pick(_checkpoints(run), rng)
    name = pick([name for name in ("optimizer", "optimizer", "memory", "model", "model") if _there(folder, name)], rng)
    path = folder / f"{name}.safetensors"
    content = tensors.load_tensors(path)
    if not content:
        return _bytes(run, rng)
    key = pick(sorted(content), rng)
    num_siblings = sum(other.startswith(key.rpartition("/")[0] + "/") for other in content) == 1
    options = [change for change in changes(content[key], rng) if not (num_siblings and change[1] is None)]
    change_name, changed = pick(options, rng)
    new = {**content, key: changed} if changed is not None else {k: v for k, v in content.items() if k != key}
    if changes is _changed and rng.random() < 0.1:
        change_name, new = "renamed", {(f"{k}x" if k == key else k): v for k, v in content.items()}
    disk.write_file(path.with_name("changed"), tensors.encode_safetensors(new))
    path.with_name("changed").replace(path)
    reseal(folder)
    return f"{folder.name}/{path.name}: {key} {change_name}"


def _there(folder: Path, name: str) -> bool:
    return (folder / f"{name}.safetensors").is_file()


def _changed(tensor: Tensor, rng: random.Random) -> Iterator[tuple[str, Tensor | None]]:
    yield "dropped", None
    yield "of shape [1]", torch.ones(1, dtype=tensor.dtype)
    yield "of shape [0]", torch.ones(0, dtype=tensor.dtype)
    yield "without a shape", torch.ones((), dtype=tensor.dtype) if tensor.dim() else torch.ones(3, dtype=tensor.dtype)
    yield "with one more dimension", tensor[None]
    yield "flattened", tensor.reshape(-1) if tensor.dim() > 1 else tensor[None, None]
    yield "longer", torch.cat([tensor.reshape(-1), tensor.reshape(-1)])
    for dtype in (torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool):
        if dtype != tensor.dtype:
            yield f"as {dtype}", tensor.to(dtype)
    if tensor.is_floating_point():
        for value in (float("nan"), float("inf"), float("-inf")):
            spoiled = tensor.clone()
            spoiled.view(-1)[int(rng.random() * spoiled.numel())] = value
            yield f"with one {value}", spoiled


def _other_values(tensor: Tensor, rng: random.Random) -> Iterator[tuple[str, Tensor | None]]:
    if not tensor.is_floating_point():
        for number in (0, -1, 2**40):
            yield f"full of {number}", torch.full_like(tensor, number if tensor.dtype == torch.int64 else 1)
        return
    yield "times 1e30", (tensor.double() * 1e30).clamp(-3e38, 3e38).to(tensor.dtype)
    for value in (0.0, 3e38, -3e38, 1e-45):
        yield f"full of {value}", torch.full_like(tensor, value)
    yield "in another order", tensor.reshape(-1).flip(0).reshape(tensor.shape)


def _header(run: Path, rng: random.Random) -> str:
    """One value in the header of a safetensors file, sealed; the data behind it stay."""
    folder = pick(_checkpoints(run), rng)
    path = pick(sorted(folder.glob("*.safetensors")), rng)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if not header:
        return _bytes(run, rng)
    changed_key = replace_value(header, rng)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    reseal(folder)
    return f"{folder.name}/{path.name}: header: {changed_key}"


# ------------------------------------------------------------ text


def _json(run: Path, rng: random.Random) -> str:
    """One value of a JSON file, at any depth; a checkpoint's is sealed or not."""
    folder = pick(_checkpoints(run), rng)
    inside = [folder / "state.json", folder / "state.json", folder / "manifest.json", folder / "tokenizer.json"]
    beside = ["data.json", "tokenizer.json", "finished.json", "report.json", "origin.json"]
    path = pick([*inside, *(run / name for name in beside)], rng)
    if not path.is_file():
        return _bytes(run, rng)
    content = json.loads(path.read_bytes())
    if not content:
        return _bytes(run, rng)
    changed_key = replace_value(content, rng)
    path.write_text(json.dumps(content), encoding="utf-8")
    if path.parent == folder and path.name != "manifest.json" and rng.random() < 0.8:
        reseal(folder)
    return f"{path.name}: {changed_key}"


def _recipe(run: Path, rng: random.Random) -> str:
    """One setting of the run's recipe, while the checkpoints keep theirs."""
    return f"recipe.yaml: {_change_recipes([run / 'recipe.yaml'], rng)}"


def _consistent_recipe(run: Path, rng: random.Random) -> str:
    """One setting of the recipe in all places at once, sealed."""
    changed_key = _change_recipes([run / "recipe.yaml", *run.glob("checkpoints/step-*/recipe.yaml")], rng)
    for folder in _checkpoints(run):
        reseal(folder)
    return f"recipe.yaml everywhere: {changed_key}"


def _change_recipes(paths: list[Path], rng: random.Random) -> str:
    original = yaml.safe_load(paths[0].read_bytes())
    while True:
        content = copy.deepcopy(original)
        changed_key = replace_value(content, rng)
        if not _has_larger_budget(content, original):
            break
    for path in paths:
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return changed_key


def _has_larger_budget(content: Any, original: Any) -> bool:
    """Whether a recipe lets its run train for longer, as anybody may ask: without `train.steps` it takes minutes."""
    train = content.get("train", {}) if isinstance(content, dict) else None
    if not isinstance(train, dict):
        return False
    steps = train.get("steps")
    is_larger = isinstance(steps, int | float) and steps > original["train"]["steps"]
    return "steps" in original["train"] and (steps is None or is_larger)


def _tokenizer(run: Path, rng: random.Random) -> str:
    """The tokenizer of the run alone, or of one checkpoint alone, sealed."""
    folder = pick([run, *_checkpoints(run)], rng)
    return f"{folder.name if folder != run else 'run'}/{_change_tokenizers([folder / 'tokenizer.json'], rng)}"


def _consistent_tokenizer(run: Path, rng: random.Random) -> str:
    """The tokenizer in all places at once, sealed."""
    paths = [run / "tokenizer.json", *run.glob("checkpoints/step-*/tokenizer.json")]
    return f"everywhere {_change_tokenizers(paths, rng)}"


def _change_tokenizers(paths: list[Path], rng: random.Random) -> str:
    content = json.loads(paths[0].read_bytes())
    change_name = mutate_tokenizer(content, rng)
    for path in paths:
        path.write_text(json.dumps(content), encoding="utf-8")
        if (path.parent / "manifest.json").is_file():
            reseal(path.parent)
    return f"tokenizer.json: {change_name}"


def _metrics(run: Path, rng: random.Random) -> str:
    """One line of the metrics."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    number = int(rng.random() * len(lines))
    entry = json.loads(lines[number])
    changed_key = replace_value(entry, rng)
    lines[number] = pick([json.dumps(entry).encode(), b"[]", b"17", b"\xff\xfe", b"{" * 200, b'{"step": 1e999}'], rng)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return f"metrics.jsonl: line {number}: {changed_key}"


def _pointer(run: Path, rng: random.Random) -> str:
    """What `latest` or `best` names."""
    path = run / "checkpoints" / pick(("latest", "best"), rng)
    checkpoint_names = [folder.name for folder in _checkpoints(run)]
    path.write_text(
        pick([*checkpoint_names, "step-99999999", "step-4", "../..", "", "\0", "x" * 10_000, "/", "."], rng)
    )
    return f"{path.name}: {path.read_text()!r:.60}"


# ------------------------------------------------------------ bytes and files


def _bytes(run: Path, rng: random.Random) -> str:
    """Some bytes of any file flipped, cut off or put in."""
    path = pick([path for path in _files(run) if path.stat().st_size], rng)
    content = bytearray(path.read_bytes())
    position = int(rng.random() * len(content))
    match pick((0, 1, 2), rng):
        case 0:
            content[position] ^= 1 << pick(range(8), rng)
            change_name = f"bit of byte {position} flipped"
        case 1:
            del content[position:]
            change_name = f"cut off at {position}"
        case _:
            content[position:position] = rng.randbytes(pick(range(1, 64), rng))
            change_name = f"bytes put in at {position}"
    path.write_bytes(content)
    return f"{path.relative_to(run)}: {change_name}"


def _file(run: Path, rng: random.Random) -> str:
    """A file that is gone, empty, a folder or a link."""
    path = pick(_files(run), rng)
    path.unlink()
    change_name = pick(["gone", "empty", "a folder", "a link"], rng)
    if change_name == "empty":
        path.touch()
    elif change_name == "a folder":
        path.mkdir()
    elif change_name == "a link":
        path.symlink_to(run / "nowhere")
    return f"{path.relative_to(run)}: {change_name}"


def _checkpoint_folder(run: Path, rng: random.Random) -> str:
    """A checkpoint that is gone, or has the number of another step."""
    folder = pick(_checkpoints(run), rng)
    name = pick(["", "step-00000005", "step-00000099", "step-99999999", "step-00000000"], rng)
    if not name:
        shutil.rmtree(folder)
        return f"{folder.name}: gone"
    folder.rename(folder.with_name(name))
    if rng.random() < 0.5:
        reseal(folder.with_name(name), step=int(name[5:]))
    return f"{folder.name}: renamed to {name}"


def _swapped_file(run: Path, rng: random.Random) -> str:
    """A file of one checkpoint in the place of another's, sealed."""
    folders = _checkpoints(run)
    source, target = (folders[0], folders[-1]) if rng.random() < 0.5 else (folders[-1], folders[0])
    path = pick([path for path in sorted(source.iterdir()) if path.name != "manifest.json"], rng)
    shutil.copyfile(path, target / path.name)
    reseal(target)
    return f"{target.name}/{path.name}: that of {source.name}"


EVERYWHERE: list[tuple[Kind, int]] = [
    (_tensor, 8), (_header, 3), (_bytes, 4), (_json, 6), (_recipe, 4), (_tokenizer, 3), (_metrics, 3), (_pointer, 1),
    (_file, 3), (_checkpoint_folder, 1),
]  # fmt: skip
CONSISTENT: list[tuple[Kind, int]] = [
    (_finite_values, 4), (_consistent_recipe, 8), (_consistent_tokenizer, 12), (_swapped_file, 1),
]  # fmt: skip
__all__ = ["VALUES", "copied", "mutate", "mutate_tokenizer"]
