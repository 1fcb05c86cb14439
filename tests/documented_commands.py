"""Commands in the documentation: collected from every page, made smaller, and run with the files they need."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.formats import nanogpt_layout, uer_layout
from meristem import api, samples
from meristem.config.overrides import parse_overrides
from meristem.config.recipe import builtin_recipes, builtin_reward_recipes, parse_recipe_file, read_recipe
from meristem.finetune import finetuning
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

ROOT = Path(__file__).parent.parent
NOT_TESTED = ("not tested:", "未测试：")
"""What stands in the page behind a command that the tests cannot run, with the reason."""
OTHER_LANGUAGES = ("python", "yaml", "json", "text")
PLACEHOLDERS = {"FOLDER": "runs", "P": "0"}
SMALL = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "model.memory_length": 16,
    "model.cell_size": 48,
    "model.ffn_size": 64,
    "model.char_filters": "[[1,8],[2,8]]",
    "tokenizer.vocab_size": 600,
    "train.batch_tokens": 256,
    "train.steps": 3,
    "train.evaluate_tokens": 256,
    "corpus.limit": 150,
    "corpus.processes": 1,
}
SHORT = {"train.steps": 2, "train.batch_samples": 8, "train.evaluate_every": 2}
POLICY = {
    "train.steps": 1,
    "train.batch_samples": 2,
    "train.evaluate_every": 1,
    "policy.eval_prompts": 4,
    "policy.num_generations": 2,
    "policy.max_new_tokens": 6,
}
JUDGE = (
    "{train.steps: 2, model.layers: 1, model.hidden_size: 32, model.heads: 2, tokenizer.vocab_size: 300, "
    "corpus.processes: 1}"
)


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    line: str
    location: str
    """`page:line`."""

    @property
    def tested(self) -> bool:
        """Whether it can run here; the page says why where it cannot."""
        return not any(mark in self.line for mark in NOT_TESTED)

    @property
    def words(self) -> list[str]:
        """What a shell makes of it."""
        return [PLACEHOLDERS.get(word, word) for word in shlex.split(self.line, comments=True)]


def pages() -> list[str]:
    """Every page whose commands are run; the log tells what was once typed, results and decisions are no manuals."""
    paths = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
    page_names = [path.relative_to(ROOT).as_posix() for path in sorted(paths)]
    return ["README.md", "README.zh.md", *(page for page in page_names if not page.startswith("docs/log/"))]


def commands(page: str) -> list[Command]:
    """The commands of a page in their order: of fenced and indented blocks, and those in the text with arguments."""
    return list(_commands(page, (ROOT / page).read_text(encoding="utf-8").splitlines()))


def _commands(page: str, lines: list[str]) -> Iterator[Command]:
    fence: str | None = None
    number = 0
    while number < len(lines):
        line, location = lines[number], f"{page}:{number + 1}"
        number += 1
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence in OTHER_LANGUAGES:
            continue
        elif fence is not None or line.startswith("    "):
            full_line = line.strip()
            while full_line.endswith("\\"):
                full_line, number = f"{full_line[:-1].strip()} {lines[number].strip()}", number + 1
            if re.match(r"(cat \S+ \| )?meristem [a-z]|curl |python (-m meristem|\w+\.py)", full_line):
                yield Command(full_line, location)
        else:
            yield from (
                Command(code, location) for code in re.findall(r"`(meristem [a-z][^`]*)`", line) if _whole(code)
            )


def python(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def written_files(page: str) -> dict[str, str]:
    """The files that a page tells to write: blocks of Python or YAML whose first line is a comment with their name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = re.compile(r"```(?:python|yaml)\n(# ([\w-]+\.(?:py|ya?ml))\n.*?)```", re.DOTALL)
    return {name: content for content, name in block.findall(text)}


def _whole(code: str) -> bool:
    """Whether code in the text is a command to type: with an argument, none of them a stand-in or fetched."""
    arguments = code.split()[2:]
    named = [word for word in arguments if not word.startswith("-")]
    return bool(named) and not any(re.search(r"\b[A-Z]{2,}\b|…|hub:", word) for word in arguments)


# ------------------------------------------------------------ smaller


def smaller(words: list[str]) -> list[str]:
    """The words of a command, with a small model, little data and few steps where it trains or measures one."""
    if words[0] == "python":
        return [re.sub(r"size=\d+", "size=60", word) for word in words]
    verb, rest = words[1], words[2:]
    if "--processes" in rest:
        rest[rest.index("--processes") + 1] = "1"
    arguments = [word for word in rest if not word.startswith("-")]
    match verb:
        case "pretrain":
            return _with(words[:2], rest, _small(arguments))
        case "describe":
            return _with(words[:2], rest, {k: v for k, v in _small(arguments).items() if not k.startswith("corpus")})
        case "finetune":
            return _with(words[:2], rest, _small_task(arguments))
        case "reinforce":
            return _with(words[:2], rest, _small_policy(arguments))
        case "compare" if "--claims" in rest:
            return words
        case "compare" if Path(arguments[0]).suffix == ".yaml":
            return [*words[:2], *(_small_comparison(Path(word)) if word == arguments[0] else word for word in rest)]
        case "compare":
            small = {key: value for key, value in _small(["bert-mini"]).items() if not key.startswith("train.")}
            rest = [word for word in rest if not word.startswith("train.")]
            rest = [word for word in rest if word != "--quick"]
            return [*_with(words[:2], rest, {**small, "train.steps": 2}), "--seeds", "1", "--quick", "--parallel", "1"]
        case "corpus" if arguments[0].startswith("builtin:"):
            return _with(words[:2], rest, {"corpus.limit": SMALL["corpus.limit"]})
        case "reward" if arguments[:1] == ["grammar"] and len(arguments) > 1:
            return _with(words[:2], rest, {"judge_settings": JUDGE})
        case "federate":
            rest = [word for n, word in enumerate(rest) if "--rounds" not in rest[max(0, n - 1) : n + 1]]
            small = {key: value for key, value in _small(arguments).items() if key != "train.steps"}
            return [*_with(words[:2], rest, {**small, "federated.local_steps": 1}), "--rounds", "1"]
        case "robustness" if "--limit" not in rest:
            return [*words, "--limit", "6"]
        case "exposure" if "--quick" not in rest:
            return [*words, "--quick"]
        case "generate" if "--max-tokens" not in rest:
            return [*words, "--max-tokens", "6"]
        case "serve" | "studio":
            port_index = rest.index("--port") if "--port" in rest else len(rest)
            return [*words[:2], *rest[:port_index], "--port", "0", *rest[port_index + 2 :]]
    return words


def small_pretrain(
    recipe: str = "bert-mini", overrides: Any = (), *, pretrain: Any = api.pretrain, **options: Any
) -> Any:
    """`meristem.pretrain` with a small model and few steps."""
    return pretrain(recipe, {**parse_overrides(overrides), **_small([recipe])}, **options)


def small_finetune(
    recipe: str = "classification", overrides: Any = (), *, finetune: Any = api.finetune, **options: Any
) -> Any:
    """`meristem.finetune` with few samples and few steps."""
    settings = parse_overrides(overrides)
    arguments = [recipe, *(f"{key}={value}" for key, value in settings.items())]
    small = _small_task([*arguments, "data.train=…"] if "data" in options else arguments)
    return finetune(recipe, {**settings, **small}, **options)


def _with(command: list[str], rest: list[str], settings: dict[str, Any]) -> list[str]:
    option_index = next((n for n, word in enumerate(rest) if word.startswith("--")), len(rest))
    return [
        *command,
        *rest[:option_index],
        *(f"{key}={value}" for key, value in settings.items()),
        *rest[option_index:],
    ]


def _small(arguments: list[str]) -> dict[str, Any]:
    """What the family of a recipe has of the small settings; a run that is gone on with keeps its own."""
    recipe = arguments[0] if arguments and (arguments[0] in builtin_recipes() or "/" in arguments[0]) else "bert-mini"
    if recipe not in builtin_recipes():
        return {key: value for key, value in SMALL.items() if not key.startswith(("model.", "tokenizer."))}
    family = MODEL_FAMILIES[parse_recipe_file(builtin_recipes()[recipe])["model"]["family"]]
    return {k: v for k, v in SMALL.items() if not k.startswith("model.") or k[6:] in family.Settings.model_fields}


def _small_task(arguments: list[str]) -> dict[str, Any]:
    """Few samples of the built-in sets, and a small model unless it begins from a run."""
    overrides = dict(word.partition("=")[::2] for word in arguments if "=" in word)
    recipe = arguments[0] if arguments and "=" not in arguments[0] else overrides.get("task", "classification")
    mapping = read_recipe(recipe)[1]
    data_overrides = {
        f"data.{split}": re.sub("size=[0-9]+", f"size={size}", mapping["data"][split])
        for split, size in (("train", 24), ("validation", 8), ("test", 8))
        if "data.train" not in overrides
    }
    if str(overrides.get("from", "scratch")).startswith("runs/"):
        return {**SHORT, **data_overrides}
    fields = MODEL_FAMILIES[mapping["model"]["family"]].Settings.model_fields
    shape = {k: v for k, v in SMALL.items() if k[:6] == "model." and k[6:] in fields and k != "model.max_length"}
    return {**SHORT, **data_overrides, **shape, "tokenizer.vocab_size": 600}


def _small_comparison(path: Path) -> str:
    """A file beside the comparison's with the same arms and tasks, and two steps of each."""
    comparison = yaml.safe_load(path.read_text(encoding="utf-8"))
    small = {key: value for key, value in _small(["bert-mini"]).items() if not key.startswith("train.")}
    comparison.update(budget={"steps": 2}, seeds=1, settings={**comparison.get("settings", {}), **small})
    for task in comparison.get("tasks", ()):
        task.update(labels=[], all_labels=True, settings={"train.steps": 2, "data.limit": 40})
    smaller_path = path.with_name(f"small-{path.name}")
    smaller_path.write_text(yaml.safe_dump(comparison, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return str(smaller_path)


def _small_policy(arguments: list[str]) -> dict[str, Any]:
    """Few prompts and little data for the rewards; a start of a recipe's own is one that is here."""
    if arguments[0] not in builtin_reward_recipes():
        return POLICY
    plain = parse_recipe_file(builtin_reward_recipes()[arguments[0]])
    data = {f"data.{key}": fewer(value) for key, value in plain["data"].items()}
    parts = {part: json.dumps(fewer(plain[part])) for part in ("rewards", "judge")}
    start = {} if any(word.startswith("from=") for word in arguments) else {"from": f"runs/{plain['from']['recipe']}"}
    return {**POLICY, **data, **parts, **start}


def fewer(value: Any) -> Any:
    """The same settings with little data."""
    if isinstance(value, dict):
        return {key: fewer(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [fewer(inner) for inner in value]
    return re.sub(r"size=\d+", "size=60", value) if isinstance(value, str) else value


# ------------------------------------------------------------ what they read


class Provided:
    """Files and runs that commands name and a reader has: made when first named, runs once for all pages."""

    def __init__(self, shelf: Path) -> None:
        self.shelf = shelf

    def provide(self, words: list[str]) -> None:
        """What a command reads and is not in this folder yet."""
        for word in words:
            for part in re.split(r"[=,]", word):
                self._file(part.strip())
        for name in {run_name for word in words for run_name in re.findall(r"runs/([\w-]+)", word)}:
            if not Path("runs", name).exists() and name in {**RUNS, **builtin_recipes()} and not _makes(words, name):
                self._run(name)

    def _file(self, name: str) -> None:
        stem = re.split(r"[*]", name)[0].rstrip("/") or name
        for path in (Path(stem), *Path(stem).parents):
            if str(path) in FILES and not path.exists():
                FILES[str(path)](path)

    def _run(self, name: str) -> None:
        run_folder = self.shelf / name
        if not run_folder.exists():
            words = ["meristem", *shlex.split(RUNS.get(name, f"pretrain {name}"))]
            self.provide(words)
            untrained(smaller(words), run_folder)
        shutil.copytree(run_folder, Path("runs", name))


def _makes(words: list[str], name: str) -> bool:
    """Whether the command itself makes a run of that name."""
    out = words[words.index("--out") + 1] if "--out" in words else ""
    return out == f"runs/{name}" or (not out and words[1:3] in (["pretrain", name], ["finetune", name]))


def untrained(words: list[str], out: Path) -> None:
    """The run that a training command would begin with: pages that name a run ask nothing of what it learned."""
    name, *settings = words[2:]
    if words[1] == "finetune":
        recipe, task, labelled_splits = finetuning.prepare_task(api.resolve_task_recipe(name, settings))
        tokenizer = finetuning.build_tokenizer(recipe, task, labelled_splits)
    else:
        recipe = api.resolve_pretrain_recipe(name, [*settings, "model.layers=3"])  # pages look into the third
        tokenizer = train_tokenizer(recipe.tokenizer, [*ENGLISH, *CHINESE])
    model = build_learner(recipe, tokenizer).model
    write_run(out, recipe, tokenizer, checkpoint_state(model, {k: v.detach() for k, v in model.named_parameters()}), {})


RUNS = {
    "reviews": "finetune classification data.train=reviews.tsv",
    "opinions": "finetune classification",
    "lines": "finetune lines data.text=query data.target=text",
    "mine": "pretrain bert-mini",
    "judge": "pretrain gpt2-mini",
    "translator": "pretrain rnn-mini",
    "captioner": "pretrain captioner-mini",
    "captions": "pretrain captioner-mini",
}
"""Runs that pages name and do not make, beside those named like a recipe."""
ENGLISH = [" ".join(text.split()) for text in samples.documents("microworld-en?size=60")]
CHINESE = list(samples.documents("microworld-zh?size=60"))
PAIRS = [("Anna walked home.", "Anna ging heim.", "安娜走回家。"), ("It rained.", "Es regnete.", "下雨了。")] * 12


def _lines(rows: list[str]) -> Any:
    def write(path: Path) -> None:
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")

    return write


def _json_lines(rows: list[dict[str, Any]]) -> Any:
    return _lines([json.dumps(row, ensure_ascii=False) for row in rows])


def _clients(path: Path) -> None:
    """Three owners of text, and the file that names them."""
    for name, texts in (("anna", ENGLISH[:40]), ("ben", ENGLISH[40:80])):
        if not Path(name).exists():
            _folder(texts)(Path(name))
    _json_lines([{"text": text} for text in ENGLISH[80:120]])(Path("cleo.jsonl"))
    sources = {"anna": "anna/*.txt", "ben": "ben/", "cleo": "cleo.jsonl"}
    path.write_text("".join(f"- {{name: {name}, source: {source}}}\n" for name, source in sources.items()), "utf-8")


def _folder(texts: list[str]) -> Any:
    def write(path: Path) -> None:
        path.mkdir()
        for number in range(3):
            (path / f"{number}.txt").write_text("\n\n".join(texts[number::3]) + "\n", encoding="utf-8")

    return write


def _picture(path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (32, 32), (200, 40, 40)).save(path)


def _pictures(path: Path) -> None:
    """A folder of pictures with its table of captions, and the same table beside it."""
    folder = path.with_suffix("")
    names = [f"{number}.png" for number in range(12)]
    for name in names:
        _picture(folder / name)
    for table, path_prefix in ((folder / "captions.jsonl", ""), (folder.with_suffix(".jsonl"), f"{folder.name}/")):
        _json_lines([{"path": path_prefix + name, "caption": f"a red square like {name}"} for name in names])(table)


def _bert(path: Path) -> None:
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(" ".join(ENGLISH[:20]).lower().split())]
    words += [letter for letter in dict.fromkeys("".join(CHINESE[:20])) if letter not in words]
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, **shape)
    transformers.BertForMaskedLM(config).save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")


def _nanogpt(path: Path) -> None:
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(nanogpt_layout.nanogpt_checkpoint(bias=True), path)


def _nanogpt_data(path: Path) -> None:
    path.mkdir(parents=True)
    nanogpt_layout.write_meta(path / "meta.pkl")
    letters = set(nanogpt_layout.CHARACTERS)
    text = "\n\n".join(ENGLISH).lower()
    (path / "input.txt").write_text("".join(letter for letter in text if letter in letters), encoding="utf-8")


def _uer(path: Path) -> None:
    path.mkdir(parents=True)
    uer_layout.write_uer(path, later_names=True)


def _book_review(path: Path) -> None:
    path.mkdir(parents=True)
    rows = ["label\ttext_a", *(f"{number % 2}\t{text[:40]}" for number, text in enumerate(CHINESE[:40]))]
    for name in ("train.tsv", "dev.tsv"):
        _lines(rows)(path / name)


def _squad(path: Path) -> None:
    questions = [
        {"id": str(n), "question": "Who walked?", "answers": [{"text": "Ada", "answer_start": 0}]} for n in range(12)
    ]
    data = {"data": [{"title": "Ada", "paragraphs": [{"context": "Ada walked home.", "qas": questions}]}]}
    path.write_text(json.dumps(data), encoding="utf-8")


def _my_yaml(path: Path) -> None:
    _json_lines([{"prompt": text[:30]} for text in ENGLISH[:12]])(Path("prompts.jsonl"))
    path.write_text(
        "from: runs/gpt2-mini\ndata: {train: prompts.jsonl}\n"
        "rewards: [{name: length, target: 5}]\njudge: [{name: repetition}]\npolicy: {num_generations: 2}\ntrain: "
        "{steps: 1}\n",
        encoding="utf-8",
    )


REVIEWS = [f"a {'lovely' if n % 2 else 'dreadful'} day {n}\t{n % 2}" for n in range(40)]
CONLL = [line for n in range(12) for line in ("Ada B-person", f"walked{n} O", "home O", "")]
ARTICLES = [line for n, text in enumerate(ENGLISH) for line in (f" = Article {n} = ", "", text, "")]
FILES: dict[str, Any] = {
    "my-texts": _folder(ENGLISH),
    "我的文本": _folder(CHINESE),
    "crawl": _folder(ENGLISH),
    "train.en": _lines([english for english, _, _ in PAIRS]),
    "train.de": _lines([german for _, german, _ in PAIRS]),
    "train.zh": _lines([chinese for _, _, chinese in PAIRS]),
    "test.en": _lines([english for english, _, _ in PAIRS]),
    "test.de": _lines([german for _, german, _ in PAIRS]),
    "pictures.jsonl": _pictures,
    "pictures": _pictures,
    "scene.png": _picture,
    "reviews.tsv": _lines(["text\tlabel", *REVIEWS]),
    "train.tsv": _lines(["text\tlabel", *REVIEWS]),
    "dev.tsv": _lines(["text\tlabel", *REVIEWS[:8]]),
    "more.tsv": _lines(["text\tlabel", *REVIEWS[:8]]),
    "new.csv": _lines(["id,text", *(f"{n},a lovely day {n}" for n in range(4))]),
    "lines.txt": _lines(ENGLISH[:4]),
    "texts.txt": _lines(ENGLISH[:4]),
    "prompts.txt": _lines([text[:30] for text in ENGLISH[:12]]),
    "novels.txt": _lines(ENGLISH),
    "my.txt": _lines("\n\n".join(ENGLISH).split("\n")),
    "glove.txt": _lines([f"{word} {n}.5 {-n} 0.25 1" for n, word in enumerate(("a", "boat", "came", "in", "ship"))]),
    "clicks.csv": _lines(
        [
            "query,text,shown,clicked",
            *(f"repair a lamp {n % 6},We mend lamp {n},100,{n % 30 + 1}" for n in range(36)),
        ]
    ),
    "wiki.train.tokens": _lines(ARTICLES[:160]),
    "wiki.valid.tokens": _lines(ARTICLES[160:200]),
    "wiki.test.tokens": _lines(ARTICLES[200:]),
    "minimal-pairs.jsonl": _json_lines([{"sentence_good": "Ada walked.", "sentence_bad": "Ada walk."}]),
    "clients.yaml": _clients,
    "public.txt": _lines(ENGLISH[:40]),
    "my-tests.jsonl": _json_lines(
        [
            {"test": "weather", "text": "a lovely day", "expected": "1"},
            {"test": "numbers", "texts": ["a lovely day 1", "a lovely day 2"]},
        ]
    ),
    "train.conll": _lines(CONLL),
    "test.conll": _lines(CONLL),
    "train-v2.0.json": _squad,
    "dev-v2.0.json": _squad,
    "articles.jsonl": _json_lines([{"text": f"{text} " * 2, "summary": text[:40]} for text in ENGLISH[:12]]),
    "chats.jsonl": _json_lines([{"turns": ["Hello.", "Hello, you.", "How are you?", "Well."]}] * 12),
    "bert-base-uncased": _bert,
    "bert-base-chinese": _bert,
    "my.yaml": _my_yaml,
    "out-shakespeare-char/ckpt.pt": _nanogpt,
    "data/shakespeare_char": _nanogpt_data,
    "models": _uer,
    "corpora": lambda path: _folder(CHINESE)(path) or _lines(["。\n".join(CHINESE)])(path / "book_review_bert.txt"),
    "datasets/book_review": _book_review,
    "mine:score": lambda _: _lines(
        [
            "def score(prompts, completions, **columns):",
            "    return [float(text.endswith('.')) for text in completions]",
        ]
    )(Path("mine.py")),
    "key.txt": lambda path: (_lines(["0123456789abcdef" * 3])(path), path.chmod(0o600)),
}
"""Files that pages name and a reader has, by name."""
