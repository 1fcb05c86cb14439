"""The GGUF architectures that runs are written as: GPT-2, Llama, BERT, ModernBERT and T5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meristem.config.errors import MeristemError
from meristem.interop.gguf_files.gguf_architecture import Config, GgufArchitecture, TensorName


def _layers(gguf: str, theirs: str, names: Iterable[tuple[str, str]]) -> tuple[TensorName, ...]:
    return tuple(TensorName(f"{gguf}.{name}", f"{theirs}.{their_name}") for name, their_name in names)


def _activation(config: Config, key: str, supported: Mapping[str, str]) -> str | None:
    """A sentence if llama.cpp does not have the activation of a model."""
    name = config[key]
    return None if name in supported else f"{key}={name}: llama.cpp computes {' or '.join(supported)} there"


def _common(config: Config, keys: Mapping[str, str]) -> dict[str, Any]:
    return {ours: config[theirs] for ours, theirs in keys.items()}


def _reversed(keys: Mapping[str, str]) -> Callable[[Config], dict[str, Any]]:
    """Metadata → config.json by the same table; keys that the file lacks are left to the model type's defaults."""
    return lambda metadata: {theirs: metadata[ours] for ours, theirs in keys.items() if ours in metadata}


GPT2_KEYS = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "feed_forward_length": "n_inner",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}


def _gpt2_metadata(config: Config) -> dict[str, Any]:
    return _common({**config, "n_inner": config["n_inner"] or 4 * config["n_embd"]}, GPT2_KEYS)


GPT2 = GgufArchitecture(
    name="gpt2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    metadata=_gpt2_metadata,
    to_config=lambda metadata: _reversed(GPT2_KEYS)(metadata) | {"activation_function": "gelu_new"},
    unsupported=lambda config: _activation(config, "activation_function", {"gelu_new": "gelu_tanh"}),
    tensors=(
        TensorName("token_embd", "transformer.wte"),
        TensorName("position_embd", "transformer.wpe"),
        TensorName("output_norm", "transformer.ln_f"),
        TensorName("output", "lm_head"),
        *_layers("blk.{}", "transformer.h.{}", (("attn_norm", "ln_1"), ("ffn_norm", "ln_2"))),
        *(
            TensorName(f"blk.{{}}.{name}", f"transformer.h.{{}}.{theirs}", "transposed")
            for name, theirs in (
                ("attn_qkv", "attn.c_attn"),
                ("attn_output", "attn.c_proj"),
                ("ffn_up", "mlp.c_fc"),
                ("ffn_down", "mlp.c_proj"),
            )
        ),
    ),
)

LLAMA_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}


def _llama_metadata(config: Config) -> dict[str, Any]:
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    return {
        **_common(config, LLAMA_KEYS),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
    }


def _llama_config(metadata: Config) -> dict[str, Any]:
    theta = float(metadata.get("rope.freq_base", 10_000.0))
    scaling = metadata.get("rope.scaling.type")
    if scaling not in (None, "none"):
        raise MeristemError(f"rope.scaling.type={scaling}: scaled rotary positions are not supported")
    return _reversed(LLAMA_KEYS)(metadata) | {"rope_parameters": {"rope_theta": theta, "rope_type": "default"}}


LLAMA = GgufArchitecture(
    name="llama",
    model_type="llama",
    architecture="LlamaForCausalLM",
    metadata=_llama_metadata,
    to_config=_llama_config,
    unsupported=lambda config: _activation(config, "hidden_act", {"silu": "swiglu"}),
    tensors=(
        TensorName("token_embd", "model.embed_tokens"),
        TensorName("output_norm", "model.norm"),
        TensorName("output", "lm_head"),
        TensorName("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", "rotary", "num_attention_heads"),
        TensorName("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", "rotary", "num_key_value_heads"),
        *_layers(
            "blk.{}",
            "model.layers.{}",
            (
                ("attn_v", "self_attn.v_proj"),
                ("attn_output", "self_attn.o_proj"),
                ("attn_norm", "input_layernorm"),
                ("ffn_norm", "post_attention_layernorm"),
                ("ffn_gate", "mlp.gate_proj"),
                ("ffn_up", "mlp.up_proj"),
                ("ffn_down", "mlp.down_proj"),
            ),
        ),
    ),
)

BERT_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_epsilon": "layer_norm_eps",
}
BERT = GgufArchitecture(
    name="bert",
    model_type="bert",
    architecture="BertModel",
    metadata=lambda config: {**_common(config, BERT_KEYS), "attention.causal": False},
    to_config=_reversed(BERT_KEYS),
    unsupported=lambda config: _activation(config, "hidden_act", {"gelu": "gelu", "gelu_new": "gelu_tanh"}),
    tensors=(
        TensorName("token_embd", "bert.embeddings.word_embeddings"),
        TensorName("position_embd", "bert.embeddings.position_embeddings"),
        TensorName("token_types", "bert.embeddings.token_type_embeddings"),
        TensorName("token_embd_norm", "bert.embeddings.LayerNorm"),
        *_layers(
            "blk.{}",
            "bert.encoder.layer.{}",
            (
                ("attn_q", "attention.self.query"),
                ("attn_k", "attention.self.key"),
                ("attn_v", "attention.self.value"),
                ("attn_output", "attention.output.dense"),
                ("attn_output_norm", "attention.output.LayerNorm"),
                ("ffn_up", "intermediate.dense"),
                ("ffn_down", "output.dense"),
                ("layer_output_norm", "output.LayerNorm"),
            ),
        ),
    ),
)

MODERNBERT_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_epsilon": "norm_eps",
    "attention.sliding_window": "local_attention",
    "attention.sliding_window_pattern": "global_attn_every_n_layers",
}
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def _modernbert_metadata(config: Config) -> dict[str, Any]:
    theta = {kind: float(config["rope_parameters"][kind]["rope_theta"]) for kind in (GLOBAL, LOCAL)}
    return {
        **_common(config, MODERNBERT_KEYS),
        "attention.causal": False,
        "rope.freq_base": theta[GLOBAL],
        "rope.freq_base_swa": theta[LOCAL],
    }


def _modernbert_config(metadata: Config) -> dict[str, Any]:
    return _reversed(MODERNBERT_KEYS)(metadata) | {
        "global_rope_theta": metadata.get("rope.freq_base"),
        "local_rope_theta": metadata.get("rope.freq_base_swa"),
    }


MODERNBERT = GgufArchitecture(
    name="modern-bert",
    model_type="modernbert",
    architecture="ModernBertModel",
    metadata=_modernbert_metadata,
    to_config=_modernbert_config,
    unsupported=lambda config: _activation(config, "hidden_activation", {"gelu": "geglu_erf", "gelu_new": "geglu"}),
    tensors=(
        TensorName("token_embd", "model.embeddings.tok_embeddings"),
        TensorName("token_embd_norm", "model.embeddings.norm"),
        TensorName("output_norm", "model.final_norm"),
        *_layers(
            "blk.{}",
            "model.layers.{}",
            (
                ("attn_norm", "attn_norm"),
                ("attn_qkv", "attn.Wqkv"),
                ("attn_output", "attn.Wo"),
                ("ffn_norm", "mlp_norm"),
                ("ffn_up", "mlp.Wi"),
                ("ffn_down", "mlp.Wo"),
            ),
        ),
    ),
)

T5_KEYS = {
    "context_length": "n_positions",
    "embedding_length": "d_model",
    "feed_forward_length": "d_ff",
    "block_count": "num_layers",
    "decoder_block_count": "num_decoder_layers",
    "attention.head_count": "num_heads",
    "attention.key_length": "d_kv",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "attention.relative_buckets_count": "relative_attention_num_buckets",
    "decoder_start_token_id": "decoder_start_token_id",
}
T5_DISTANCE = 128  # llama.cpp has no key for it


def _t5_unsupported(config: Config) -> str | None:
    if (distance := config["relative_attention_max_distance"]) != T5_DISTANCE:
        return f"relative_attention_max_distance={distance}: llama.cpp has {T5_DISTANCE} only"
    if (name := config["feed_forward_proj"]) not in ("relu", "gated-gelu"):
        return f"feed_forward_proj={name}: llama.cpp computes relu or gated-gelu there"
    return None


def _t5_side(gguf: str, theirs: str, feed_forward: int) -> tuple[TensorName, ...]:
    block = f"{theirs}.block.{{}}.layer"
    return (
        TensorName(f"{gguf}.output_norm", f"{theirs}.final_layer_norm"),
        TensorName(f"{gguf}.blk.{{}}.attn_rel_b", f"{block}.0.SelfAttention.relative_attention_bias"),
        *_layers(
            f"{gguf}.blk.{{}}",
            block,
            (
                *((f"attn_{part}", f"0.SelfAttention.{part}") for part in "qkvo"),
                ("attn_norm", "0.layer_norm"),
                ("ffn_norm", f"{feed_forward}.layer_norm"),
                ("ffn_gate", f"{feed_forward}.DenseReluDense.wi_0"),
                ("ffn_up", f"{feed_forward}.DenseReluDense.wi_1"),
                ("ffn_up", f"{feed_forward}.DenseReluDense.wi"),
                ("ffn_down", f"{feed_forward}.DenseReluDense.wo"),
            ),
        ),
    )


T5 = GgufArchitecture(
    name="t5",
    model_type="t5",
    architecture="T5ForConditionalGeneration",
    metadata=lambda config: {**_common(config, T5_KEYS), "attention.value_length": config["d_kv"]},
    to_config=lambda metadata: _reversed(T5_KEYS)(metadata) | {"is_encoder_decoder": True},
    unsupported=_t5_unsupported,
    scaled_output=True,
    tensors=(
        TensorName("token_embd", "shared"),
        TensorName("output", "lm_head"),
        *_t5_side("enc", "encoder", 1),
        *_t5_side("dec", "decoder", 2),
        TensorName("dec.blk.{}.cross_attn_norm", "decoder.block.{}.layer.1.layer_norm"),
        *_layers(
            "dec.blk.{}",
            "decoder.block.{}.layer",
            ((f"cross_attn_{part}", f"1.EncDecAttention.{part}") for part in "qkvo"),
        ),
    ),
)

ARCHITECTURES = (GPT2, LLAMA, BERT, MODERNBERT, T5)
