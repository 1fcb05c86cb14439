"""AllenNLP's ELMo files in and out: options.json, one HDF5 file of weights, and perhaps the words of its softmax."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from torch import Tensor

from meristem import bounded
from meristem.batch import Model
from meristem.checkpoint import disk
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError, RecipeError
from meristem.interop.allennlp import SOFTMAX, AllenNLP
from meristem.interop.exporting import Exported
from meristem.interop.folder import refuse_links, some
from meristem.interop.importing import Imported, whole_state, write_run
from meristem.interop.lines import given, places
from meristem.interop.weight_matching import take
from meristem.interop.whole import whole
from meristem.learning.assemble import learner_of
from meristem.randomness import key
from meristem.recipe import Recipe, resolve
from meristem.tokenizers.roles import BRACKETED
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.card import read_card

OPTIONS, WEIGHTS, VOCABULARY = "options.json", "weights.hdf5", "vocabulary.txt"
NAMES = {"<S>": "[CLS]", "</S>": "[SEP]", "<UNK>": "[UNK]"}  # theirs → ours
ALPHABET = (261, 262)  # AllenNLP counts one more letter than the weights have: its padding
WORDS = "backbone.words.weight"
READERS = (
    "transformers has no ELMo; AllenNLP reads this folder (allennlp.modules.elmo.Elmo), and so does meristem import"
)


def holds(folder: Path) -> bool:
    """Whether a folder holds AllenNLP's files and nothing of transformers'."""
    return folder.is_dir() and not (folder / "config.json").is_file() and bool(_named(folder, OPTIONS))


def _named(folder: Path, name: str) -> list[Path]:
    """Files of this name, or else those whose name ends so: elmo_2x4096_options.json."""
    own = folder / name
    return [own] if own.is_file() else sorted(folder.glob(f"*_{name}"))


def _only(folder: Path, name: str) -> Path:
    """The one file of a name; where there are several a person must choose."""
    found = _named(folder, name) or sorted(folder.glob(f"*{Path(name).suffix}"))
    if len(found) != 1:
        many = f"several may be meant ({', '.join(one.name for one in found)})" if found else "there is none"
        raise MeristemError(f"{folder}: {name} of an ELMo: {many}; keep one of them in the folder")
    return found[0]


# ---------------------------------------------------------------- in


def import_elmo(folder: Path, out: Path) -> Imported:
    """Read the files, check that every tensor has its place, and write a run: whole or not at all."""
    refuse_links(folder)
    options = _only(folder, OPTIONS)
    told = bounded.read_mapping(options)
    letters = (told.get("char_cnn") or {}).get("n_characters", ALPHABET[0])
    if letters not in ALPHABET:
        raise MeristemError(f"{options}: char_cnn.n_characters={letters}: only {ALPHABET[0]} bytes and marks are read")
    settings = AllenNLP.settings(told, str(options))
    tokenizer = words_of(folder)
    tokens = {"kind": "words", "size": max(tokenizer.size, 512)}
    plain = {"tokenizer": tokens, "model": settings.model_dump(mode="json"), "objective": "bilm"}
    try:
        recipe = resolve(out.name, plain)
    except RecipeError as error:
        raise MeristemError(f"{options}: {error}") from None
    with torch.device("meta"):
        model = learner_of(recipe, tokenizer).model
    with _opened(_only(folder, WEIGHTS)) as file:
        made, fresh = _tensors(model, file, recipe, folder)
    run = write_run(out, recipe, tokenizer, whole_state(model, {**made, **fresh}), {"new": ["bilm"] if fresh else []})
    parameters = sum(p.numel() for p in model.parameters())
    return Imported(
        run=run.path, recipe=recipe, parameters=parameters, architecture="ELMo", fresh=tuple(fresh), left=()
    )


def words_of(folder: Path) -> Tokenizer:
    """The words of the softmax in their order; without any, words are letters to be read and none can be predicted."""
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.load(folder)
    path = folder / VOCABULARY
    written = bounded.text(path, bounded.WORDS.size) if path.is_file() else "\n".join(BRACKETED)
    tokens = written.removesuffix("\n").split("\n")
    ids = {NAMES.get(token, token): number for number, token in enumerate(tokens)}
    if len(ids) < len(tokens) or "" in ids:
        raise MeristemError(f"{path}: holds a word twice, or an empty line; each line is another word")
    if missing := [theirs for theirs, ours in NAMES.items() if ours not in ids]:
        raise MeristemError(f"{path}: holds no {', '.join(missing)}, which every ELMo's words begin with")
    made = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # what ELMo learned from was cut into words before
    made.add_special_tokens([token for token in BRACKETED if token in ids])
    return Tokenizer(made.to_str(), str(path))


def _h5py() -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise MeristemError('AllenNLP\'s weights need h5py: pip install "meristem[export]"') from None


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Any]]:
    """The arrays of an HDF5 file by name; what would lead out of the file is refused."""
    h5py = _h5py()
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise MeristemError(f"{path}: not readable as HDF5 ({error})") from None
    with file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        outside = [name for name, item in found.items() if item.external or item.is_virtual]
        if outside:
            raise MeristemError(f"{path}: {some(outside)}: stands in other files, and no other file is opened")
        yield found


def _tensors(
    model: Model, file: Mapping[str, Any], recipe: Recipe, folder: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Every tensor of ours made of theirs, and those that are new where there is no softmax."""
    wanted = dict(model.named_parameters())
    fresh = {} if any(name in file for name in SOFTMAX) else _softmax(wanted, recipe)
    largest = max(one.numel() for one in wanted.values())
    made: dict[str, Tensor] = {}
    problems, read = [], set[str]()
    for place in places(AllenNLP.lines(["bilm"]), [name for name in wanted if name not in fresh], recipe.model):
        read |= set(place.theirs)
        if missing := [name for name in place.theirs if name not in file]:
            problems += [f"{name} is missing" for name in missing]
        elif large := [name for name in place.theirs if file[name].size > 2 * largest]:
            problems += [f"{name} is larger than anything in the model" for name in large]
        else:
            theirs = [torch.from_numpy(file[name][...]) for name in place.theirs]
            problems += take(place, theirs, recipe.model, wanted[place.ours], made)
    problems += [f"{name} is not known" for name in sorted(set(file) - read)]
    if problems:
        raise MeristemError(f"{folder}: the weights are not those of its options: {some(problems, '; ')}")
    return made, fresh


def _softmax(wanted: Mapping[str, Tensor], recipe: Recipe) -> dict[str, Tensor]:
    """A softmax as a new model has it, drawn from the seed of the run."""
    generator = torch.Generator().manual_seed(key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    words = torch.randn(wanted[WORDS].shape, generator=generator) * recipe.model.width**-0.5
    return {WORDS: words, "heads.bilm.bias": torch.zeros(len(words))}


# ---------------------------------------------------------------- out


def export_elmo(revived: Revived, out: Path) -> Exported:
    """Write options, weights, words and a card, whole or not at all."""
    recipe, model = revived.recipe, revived.learner.model
    if differences := AllenNLP.differences(recipe.model):
        raise MeristemError(f"AllenNLP's ELMo has no {', '.join(differences)}; this run is read by this library alone")
    names = [name for name, _ in model.named_parameters() if name.startswith(("backbone.", "heads.bilm."))]
    found = given(places(AllenNLP.lines(["bilm"]), names, recipe.model), model.state_dict(), recipe.model)
    options = AllenNLP.config(recipe.model)
    del options["model_type"]
    options["char_cnn"]["n_characters"] = ALPHABET[1]
    texts = {
        OPTIONS: bounded.to_json(options, indent=2, ascii_only=True) + "\n",
        VOCABULARY: _vocabulary(revived.tokenizer),
        "tokenizer.json": revived.tokenizer.text,
        "README.md": _card(revived),
    }
    h5py = _h5py()
    with whole(out) as folder:
        for name, text in texts.items():
            disk.store(folder / name, [text.encode()])
        with h5py.File(folder / WEIGHTS, "w") as file:
            for name, tensor in found.items():
                file.create_dataset(name, data=tensor.detach().float().cpu().numpy())
    left = [f"{name}: left out, since an ELMo of theirs has no place for it" for name in model.heads if name != "bilm"]
    parameters = sum(one.numel() for one in found.values())
    return Exported(folder=out, architecture="ELMo", parameters=parameters, notes=(READERS, *left))


def _vocabulary(tokenizer: Tokenizer) -> str:
    theirs = {ours: name for name, ours in NAMES.items()}
    tokens = (tokenizer.token(number) for number in range(tokenizer.size))
    return "".join(f"{theirs.get(token, token)}\n" for token in tokens)


def _card(revived: Revived) -> str:
    card = read_card(revived.run.path, revived.recipe.name)
    use = [
        "```python",
        "from allennlp.modules.elmo import Elmo, batch_to_ids",
        "",
        f'elmo = Elmo("{OPTIONS}", "{WEIGHTS}", num_output_representations=1)',
        'vectors = elmo(batch_to_ids([["A", "sentence", "of", "words"]]))',
        "```",
        "",
    ]
    return "\n".join([card, "## With AllenNLP", "", f"{READERS}.", "", *use])
