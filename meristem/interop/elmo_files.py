"""Import and export of AllenNLP's ELMo files: options.json, HDF5 weights, and optionally the softmax vocabulary."""

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

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.interfaces.backbone import Model
from meristem.interop.allennlp import SOFTMAX, ElmoModelType
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.export_folder import ExportResult
from meristem.interop.import_weights import ImportResult, save_import
from meristem.interop.readme_templates import render_readme
from meristem.interop.weight_map import export_weights, match_weights
from meristem.interop.weight_matching import convert_tensor
from meristem.interop.weights_folder import format_names, refuse_links
from meristem.learning.build import build_learner
from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.report.model_card import read_card
from meristem.utils import untrusted_files
from meristem.utils.randomness import stream_key

OPTIONS_FILE, WEIGHTS_FILE, VOCABULARY_FILE = "options.json", "weights.hdf5", "vocabulary.txt"
TOKEN_NAMES = {"<S>": "[CLS]", "</S>": "[SEP]", "<UNK>": "[UNK]"}  # theirs → ours
ALPHABET_SIZES = (261, 262)  # AllenNLP counts one more character than the weights have: its padding
SOFTMAX_WEIGHT = "backbone.words.weight"
READER_NOTE = (
    "transformers has no ELMo; AllenNLP reads this folder (allennlp.modules.elmo.Elmo), and so does meristem import"
)


def is_elmo_folder(folder: Path) -> bool:
    """Whether a folder has AllenNLP's files and none of transformers'."""
    return folder.is_dir() and not (folder / "config.json").is_file() and bool(_files_named(folder, OPTIONS_FILE))


def _files_named(folder: Path, name: str) -> list[Path]:
    """Files of this name, or else those that end with it: elmo_2x4096_options.json."""
    exact = folder / name
    return [exact] if exact.is_file() else sorted(folder.glob(f"*_{name}"))


def _single_file(folder: Path, name: str) -> Path:
    """The only file of a name; several are an error."""
    matches = _files_named(folder, name) or sorted(folder.glob(f"*{Path(name).suffix}"))
    if len(matches) != 1:
        problem = f"several files match ({', '.join(path.name for path in matches)})" if matches else "there is none"
        raise MeristemError(f"{folder}: {name} of an ELMo: {problem}; keep one of them in the folder")
    return matches[0]


# ---------------------------------------------------------------- import


def import_elmo(folder: Path, out: Path) -> ImportResult:
    """Read the files, check every tensor, and write a run, complete or not at all."""
    refuse_links(folder)
    options = _single_file(folder, OPTIONS_FILE)
    elmo_options = untrusted_files.read_json_object(options)
    alphabet_size = (elmo_options.get("char_cnn") or {}).get("n_characters", ALPHABET_SIZES[0])
    if alphabet_size not in ALPHABET_SIZES:
        raise MeristemError(
            f"{options}: char_cnn.n_characters={alphabet_size}: only {ALPHABET_SIZES[0]} (bytes and marks) is supported"
        )
    settings = ElmoModelType.settings_from_config(elmo_options, str(options))
    tokenizer = read_vocabulary(folder)
    tokenizer_settings = {"kind": "words", "vocab_size": max(tokenizer.vocab_size, 512)}
    recipe_settings = {"tokenizer": tokenizer_settings, "model": settings.model_dump(mode="json"), "objective": "bilm"}
    try:
        recipe = resolve_recipe(out.name, recipe_settings)
    except RecipeError as error:
        raise MeristemError(f"{options}: {error}") from None
    with torch.device("meta"):
        model = build_learner(recipe, tokenizer).model
    with _open_hdf5(_single_file(folder, WEIGHTS_FILE)) as file:
        tensors, new_tensors = _convert_tensors(model, file, recipe, folder)
    new_heads = ["bilm"] if new_tensors else []
    return save_import(out, recipe, tokenizer, model, tensors, new_tensors, architecture="ELMo", new_heads=new_heads)


def read_vocabulary(folder: Path) -> Tokenizer:
    """The softmax vocabulary in order; without one, words are only input characters and none can be predicted."""
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.load(folder)
    path = folder / VOCABULARY_FILE
    content = (
        untrusted_files.read_text(path, untrusted_files.TOKENIZER_LIMITS.max_bytes)
        if path.is_file()
        else "\n".join(BERT_SPECIALS)
    )
    tokens = content.removesuffix("\n").split("\n")
    ids = {TOKEN_NAMES.get(token, token): token_id for token_id, token in enumerate(tokens)}
    if len(ids) < len(tokens) or "" in ids:
        raise MeristemError(f"{path}: has a duplicate word or an empty line; each line must be a different word")
    if missing := [theirs for theirs, ours in TOKEN_NAMES.items() if ours not in ids]:
        raise MeristemError(f"{path}: has no {', '.join(missing)}, with which every ELMo vocabulary begins")
    library = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    # ELMo was trained on text that was already split into words
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens([token for token in BERT_SPECIALS if token in ids])
    return Tokenizer(library.to_str(), str(path))


def _h5py() -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise MeristemError('AllenNLP\'s weights need h5py: pip install "meristem-lm[export]"') from None


@contextmanager
def _open_hdf5(path: Path) -> Iterator[dict[str, Any]]:
    """The arrays of an HDF5 file by name; links to other files are an error."""
    h5py = _h5py()
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise MeristemError(f"{path}: not readable as HDF5 ({error})") from None
    with file:
        arrays: dict[str, Any] = {}
        file.visititems(lambda name, item: arrays.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        external = [name for name, item in arrays.items() if item.external or item.is_virtual]
        if external:
            raise MeristemError(f"{path}: {format_names(external)}: stored in other files, which are not opened")
        yield arrays


def _convert_tensors(
    model: Model, file: Mapping[str, Any], recipe: Recipe, folder: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Every tensor converted from theirs, and newly initialised ones if there is no softmax."""
    parameters = dict(model.named_parameters())
    new_tensors = {} if any(name in file for name in SOFTMAX) else _init_softmax(parameters, recipe)
    largest = max(parameter.numel() for parameter in parameters.values())
    tensors: dict[str, Tensor] = {}
    problems, used_names = [], set[str]()
    for match in match_weights(
        ElmoModelType.weight_rules(["bilm"]), [name for name in parameters if name not in new_tensors], recipe.model
    ):
        used_names |= set(match.theirs)
        if missing := [name for name in match.theirs if name not in file]:
            problems += [f"{name} is missing" for name in missing]
        elif oversized := [name for name in match.theirs if file[name].size > 2 * largest]:
            problems += [f"{name} is larger than any tensor of the model" for name in oversized]
        else:
            theirs = [torch.from_numpy(file[name][...]) for name in match.theirs]
            problems += convert_tensor(match, theirs, recipe.model, parameters[match.ours], tensors)
    problems += [f"{name} is unknown" for name in sorted(set(file) - used_names)]
    if problems:
        raise MeristemError(f"{folder}: the weights do not match the options: {format_names(problems, '; ')}")
    return tensors, new_tensors


def _init_softmax(parameters: Mapping[str, Tensor], recipe: Recipe) -> dict[str, Tensor]:
    """A newly initialised softmax, drawn from the seed of the run."""
    generator = torch.Generator().manual_seed(stream_key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    weight = torch.randn(parameters[SOFTMAX_WEIGHT].shape, generator=generator) * recipe.model.hidden_size**-0.5
    return {SOFTMAX_WEIGHT: weight, "heads.bilm.bias": torch.zeros(len(weight))}


# ---------------------------------------------------------------- export


def export_elmo(loaded: LoadedRun, out: Path) -> ExportResult:
    """Write options, weights, vocabulary and a model card, complete or not at all."""
    recipe, model = loaded.recipe, loaded.learner.model
    if differences := ElmoModelType.unsupported_settings(recipe.model):
        raise MeristemError(f"AllenNLP's ELMo has no {', '.join(differences)}; this run can only be used with Meristem")
    names = [name for name, _ in model.named_parameters() if name.startswith(("backbone.", "heads.bilm."))]
    tensors = export_weights(
        match_weights(ElmoModelType.weight_rules(["bilm"]), names, recipe.model), model.state_dict(), recipe.model
    )
    options = ElmoModelType.config_from_settings(recipe.model)
    del options["model_type"]
    options["char_cnn"]["n_characters"] = ALPHABET_SIZES[1]
    texts = {
        OPTIONS_FILE: untrusted_files.to_json(options, indent=2, ascii_only=True) + "\n",
        VOCABULARY_FILE: _vocabulary_text(loaded.tokenizer),
        "tokenizer.json": loaded.tokenizer.json_text,
        "README.md": render_readme(
            "elmo_card.md.jinja",
            card=read_card(loaded.run.path, loaded.recipe.name),
            reader_note=READER_NOTE,
            options_file=OPTIONS_FILE,
            weights_file=WEIGHTS_FILE,
        ),
    }
    h5py = _h5py()
    with atomic_folder(out) as folder:
        for name, text in texts.items():
            disk.write_file(folder / name, [text.encode()])
        with h5py.File(folder / WEIGHTS_FILE, "w") as file:
            for name, tensor in tensors.items():
                file.create_dataset(name, data=tensor.detach().float().cpu().numpy())
    omitted = [f"{name}: left out, since AllenNLP's ELMo has no such head" for name in model.heads if name != "bilm"]
    parameters = sum(weight.numel() for weight in tensors.values())
    return ExportResult(folder=out, architecture="ELMo", parameters=parameters, notes=(READER_NOTE, *omitted))


def _vocabulary_text(tokenizer: Tokenizer) -> str:
    theirs = {ours: name for name, ours in TOKEN_NAMES.items()}
    tokens = (tokenizer.id_to_token(token_id) for token_id in range(tokenizer.vocab_size))
    return "".join(f"{theirs.get(token, token)}\n" for token in tokens)
