"""llama.cpp as the consumer of exported GGUF files, through llama-cpp-python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import our_outputs
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.our_outputs import Floats
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.generation.generation_inputs import input_template
from meristem.interop.gguf_files.gguf_export import GGUF_FILE, export_gguf

STEPS = 12
ALL_LAYERS_ON_CPU = 0


class LlamaModel:
    """A GGUF file opened by llama.cpp with a float32 KV cache, one thread and no flash attention."""

    def __init__(self, path: Path, *, embeddings: bool, context: int = 64) -> None:
        import llama_cpp

        self.library = llama_cpp
        self._log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = ALL_LAYERS_ON_CPU
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self.model:
            raise RuntimeError(f"{path}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = max(context, 64)
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.embeddings = embeddings
        params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"{path}: llama.cpp cannot make a context")
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)

    @property
    def version(self) -> str:
        """The version of the Python package, which contains llama.cpp."""
        return str(self.library.__version__)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text, with the special tokens around it if `special`; written special tokens are text."""
        encoded = text.encode()
        buffer = (self.library.llama_token * (len(encoded) + 16))()
        count = self.library.llama_tokenize(self.vocabulary, encoded, len(encoded), buffer, len(buffer), special, False)
        return list(buffer[:count])

    def logits(self, ids: Sequence[int]) -> Floats:
        """[T, V] logits at every position of a new text."""
        self._clear()
        batch = self.library.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for number, token in enumerate(ids):
            batch.token[number], batch.pos[number], batch.logits[number] = token, number, True
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, 0
        self._check(self.library.llama_decode(self.context, batch))
        width = self.library.llama_vocab_n_tokens(self.vocabulary)
        rows = [self._copy(self.library.llama_get_logits_ith(self.context, row), width) for row in range(len(ids))]
        self.library.llama_batch_free(batch)
        return np.stack(rows)

    def states(self, ids: Sequence[int]) -> Floats:
        """[T, D] states of the tokens of a text."""
        self._encode(ids)
        width = self.library.llama_model_n_embd(self.model)
        read = self.library.llama_get_embeddings_ith
        return np.stack([self._copy(read(self.context, row), width) for row in range(len(ids))])

    def greedy(self, ids: Sequence[int], steps: int, *, stop: int | None = None) -> list[int]:
        """The most probable tokens after `ids`, by a KV cache."""
        self._clear()
        return list(self._continue(ids, steps, stop))

    def greedy_target(self, source: Sequence[int], start: Sequence[int], steps: int, stop: int | None) -> list[int]:
        """The most probable target tokens of an encoder-decoder."""
        self._clear()
        self._encode(source)
        return list(self._continue(start, steps, stop))

    def target_logits(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """[T, V] logits of a target of an encoder-decoder, token by token."""
        self._clear()
        self._encode(source)
        return np.stack([self._step([token]) for token in target])

    def close(self) -> None:
        """Free the model."""
        self.library.llama_free(self.context)
        self.library.llama_model_free(self.model)

    def _continue(self, ids: Sequence[int], steps: int, stop: int | None) -> Iterator[int]:
        new = list(ids)
        for _ in range(steps):
            token = int(self._step(new).argmax())
            yield token
            if token == stop:
                return
            new = [token]

    def _step(self, ids: Sequence[int]) -> Floats:
        array = (self.library.llama_token * len(ids))(*ids)
        self._check(self.library.llama_decode(self.context, self.library.llama_batch_get_one(array, len(ids))))
        width = self.library.llama_vocab_n_tokens(self.vocabulary)
        return self._copy(self.library.llama_get_logits_ith(self.context, -1), width)

    def _encode(self, ids: Sequence[int]) -> None:
        array = (self.library.llama_token * len(ids))(*ids)
        self._check(self.library.llama_encode(self.context, self.library.llama_batch_get_one(array, len(ids))))

    def _clear(self) -> None:
        memory = self.library.llama_get_memory(self.context)
        if memory:
            self.library.llama_memory_clear(memory, True)

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise RuntimeError(f"llama.cpp returned {code}")

    @staticmethod
    def _copy(pointer: Any, width: int) -> Floats:
        return np.ctypeslib.as_array(pointer, shape=(width,)).astype(np.float64)


@contextmanager
def open_gguf(path: Path, *, embeddings: bool, context: int = 64) -> Iterator[LlamaModel]:
    """A GGUF file opened by llama.cpp."""
    model = LlamaModel(path, embeddings=embeddings, context=context)
    try:
        yield model
    finally:
        model.close()


def compare_gguf(run: Path, folder: Path, *, int8: bool = False) -> Comparison:
    """Export a run, open it with llama.cpp, and compare token ids, logits or states, and greedy tokens."""
    export_gguf(run, folder, int8=int8)
    loaded = load_run(run)
    heads = loaded.learner.model.heads
    is_encoder = "clm" not in heads and "seq2seq" not in heads
    with open_gguf(folder / GGUF_FILE, embeddings=is_encoder) as model:
        compare = _compare_states if is_encoder else _compare_targets if "seq2seq" in heads else _compare_logits
        compared, difference, scale, identical = compare(loaded, model)
        return Comparison(
            consumer=f"llama.cpp (llama-cpp-python {model.version})",
            family=loaded.recipe.name + (" q8_0" if int8 else ""),
            compared=compared,
            difference=difference,
            scale=scale,
            identical=identical,
        )


Result = tuple[str, float, float, str]
"""What was compared, the largest difference, the largest value, and how many discrete outputs are identical."""


def _compare_logits(run: LoadedRun, model: LlamaModel) -> Result:
    start = list(input_template(run.learner.model, run.tokenizer, "causal").prompt_start_ids)
    differences, values, same = [], [], 0
    for text in SENTENCES:
        ids = [*start, *run.tokenizer.encode(text).ids.tolist()]
        ours, theirs = our_outputs.causal_logits(run, ids), model.logits(ids)
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += model.tokenize(text, special=True) == ids and model.greedy(ids, STEPS) == our_outputs.greedy_causal(
            run, ids, STEPS
        )
    return "ids, logits, greedy tokens", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"


def _compare_states(run: LoadedRun, model: LlamaModel) -> Result:
    differences, values, same = [], [], 0
    for text in SENTENCES:
        ids = our_outputs.encoder_ids(run, text)
        ours, theirs = our_outputs.encoder_states(run, ids), model.states(ids)
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += model.tokenize(text, special=True) == ids
    return "ids, states", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"


def _compare_targets(run: LoadedRun, model: LlamaModel) -> Result:
    start = list(input_template(run.learner.model, run.tokenizer, "source").decoder_start_ids)
    end = run.tokenizer.end
    differences, values, same = [], [], 0
    for text in SENTENCES:
        source = our_outputs.source_ids(run, text)
        target = our_outputs.greedy_target(run, source, start, STEPS)
        inputs = [*start, *target[:-1]]
        ours, theirs = our_outputs.decoder_logits(run, source, inputs), model.target_logits(source, inputs)
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += (
            model.tokenize(text, special=True) == source and model.greedy_target(source, start, STEPS, end) == target
        )
    return "ids, logits, greedy tokens", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"
