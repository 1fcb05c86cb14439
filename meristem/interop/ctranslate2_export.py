"""Export of a run as a ctranslate2 model: encoder-decoders, causal models and BERT, in float32 or with int8 weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from meristem.blocks.transformer.decoder import TransformerDecoderLayer
from meristem.blocks.transformer.feed_forward import GATED_ACTIVATIONS
from meristem.blocks.transformer.layer import TransformerLayer
from meristem.blocks.transformer.layer_stack import LayerStack
from meristem.blocks.transformer.stack import StackSettings
from meristem.checkpoint import disk
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import LMKind
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.export_folder import ExportResult
from meristem.interop.readme_templates import render_readme
from meristem.interop.tokenizer_conversion import describe_tokenizer
from meristem.models.bert import Bert
from meristem.models.captioner import Captioner
from meristem.models.gpt2 import GPT2
from meristem.models.transformer import Transformer
from meristem.training.report.model_card import read_card
from meristem.utils import untrusted_files

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "swiglu": "SWISH",
    "geglu": "GELUTanh",
    "geglu_erf": "GELU",
}
"""Our activations → ctranslate2's; the others it does not have."""
NEUTRAL_SETTINGS: Mapping[str, Any] = {
    "attention_window": None,
    "qk_norm": False,
    "embedding_shortcut": False,
    "value_embeddings": 0,
    "output_transform": False,
}
"""Settings that ctranslate2 has no counterpart for → the value with which they do nothing."""
TASK_HEADS = {"encoder-decoder": "seq2seq", "causal": "clm", "encoder": None}
LM_KINDS: Mapping[str, LMKind | None] = {"encoder-decoder": "source", "causal": "causal", "encoder": None}


def export_ctranslate2(run: Path, out: Path, *, int8: bool = False) -> ExportResult:
    """Write model.bin, vocabulary, tokenizer.json and a README; what ctranslate2 cannot compute is an error."""
    library = _library()
    loaded = load_run(run)
    model = loaded.learner.model.float()
    kind = _model_kind(loaded)
    settings: Any = model.backbone.settings  # those of a Transformer, as is checked
    _check_settings(settings, kind)
    head = TASK_HEADS[kind]
    if head is not None and head not in model.heads:
        raise MeristemError(f"--ctranslate2: this run has no {head} head, which a {kind} model needs")
    spec = {"encoder-decoder": _encoder_decoder, "causal": _causal, "encoder": _encoder}[kind](library, loaded)
    spec.config.layer_norm_epsilon = settings.norm_epsilon
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    notes = tuple(
        f"{name}: left out, since ctranslate2's {kind} has no such head" for name in model.heads if name != head
    )
    with atomic_folder(out) as folder:
        spec.save(str(folder))
        for name, text in _text_files(loaded, kind, notes).items():
            disk.write_file(folder / name, [text.encode()])
    return ExportResult(
        folder=out,
        architecture=f"ctranslate2 {kind} ({loaded.recipe.model.family}, {'int8' if int8 else 'float32'})",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        notes=notes,
    )


def _model_kind(loaded: LoadedRun) -> str:
    """Which of ctranslate2's kinds of models a run is; others are refused by name."""
    backbone = loaded.learner.model.backbone
    if isinstance(backbone, Transformer) and not isinstance(backbone, Captioner):
        return "encoder-decoder"
    if isinstance(backbone, GPT2):
        return "causal"
    if type(backbone) is Bert:
        return "encoder"
    raise MeristemError(
        f"--ctranslate2: {loaded.recipe.model.family} is not written for ctranslate2; supported: transformer, gpt, "
        "gpt2, modern, bert"
    )


def _check_settings(settings: Any, kind: str) -> None:
    """Refuse by name what ctranslate2 would compute otherwise."""
    values = settings.model_dump()
    problems = [
        f"model.{name}={values[name]}"
        for name, neutral in NEUTRAL_SETTINGS.items()
        if name in values and values[name] != neutral
    ]
    if values["activation"] not in ACTIVATIONS:
        problems.append(f"model.activation={values['activation']}")
    if values.get("embedding_size") not in (None, values["hidden_size"]):
        problems.append(f"model.embedding_size={values['embedding_size']}")
    if kind == "encoder" and (values["norm_position"] != "post" or values["position_encoding"] == "rotary"):
        problems.append(f"model.norm_position={values['norm_position']} with {values['position_encoding']} positions")
    if problems:
        raise MeristemError(f"--ctranslate2: its models have no {', '.join(problems)}")


def _stack_options(library: Any, settings: StackSettings) -> dict[str, Any]:
    """Options of an encoder or decoder specification."""
    activation = getattr(library.specs.common_spec.Activation, ACTIVATIONS[settings.activation])
    options: dict[str, Any] = {
        "pre_norm": settings.norm_position == "pre",
        "activation": activation,
        "ffn_glu": settings.activation in GATED_ACTIVATIONS,
        "rms_norm": settings.norm == "rms",
    }
    if settings.kv_heads not in (None, settings.heads):
        options["num_heads_kv"] = settings.kv_heads
    if settings.position_encoding == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": settings.rotary_base}
    return options


def _encoder_decoder(library: Any, loaded: LoadedRun) -> Any:
    """The specification of a Transformer, BART or T5."""
    backbone = loaded.learner.model.backbone
    assert isinstance(backbone, Transformer)
    s, specs = backbone.settings, library.specs.transformer_spec
    options = _stack_options(library, s) | {
        "layernorm_embedding": s.embedding_norm,
        "relative_attention_bias": bool(s.relative_buckets),
    }
    encoder = specs.TransformerEncoderSpec(s.layers, s.heads, **options)
    decoder = specs.TransformerDecoderSpec(s.decoder_layers or s.layers, s.heads, **options)
    spec = specs.TransformerSpec(encoder, decoder)
    head = loaded.learner.model.heads["seq2seq"]
    sides = ((encoder, backbone.encoder, backbone.enter_source), (decoder, backbone.decoder, backbone.enter_target))
    for side, stack, embedding in sides:
        _set_stack(side, stack, None if s.scale_attention else 1.0)
        side.scale_embeddings = embedding.scale if embedding.scale != 1.0 else False
        _set_positions(side, embedding.positions)
        if embedding.norm is not None:
            _set_norm(side.layernorm_embedding, embedding.norm)
    encoder.embeddings[0].weight = _array(backbone.tokens.weight)
    decoder.embeddings.weight = _array(backbone.tokens.weight)
    _set_projection(decoder, head, s.hidden_size**-0.5 if s.scale_output else None)
    tokens = _vocabulary(loaded)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    _set_special_tokens(spec.config, loaded, tokens)
    start_ids = input_template(loaded.learner.model, loaded.tokenizer, "source").decoder_start_ids
    spec.config.decoder_start_token = tokens[start_ids[0]]
    return spec


def _causal(library: Any, loaded: LoadedRun) -> Any:
    """The specification of a GPT, GPT-2 or Llama-like model."""
    backbone = loaded.learner.model.backbone
    assert isinstance(backbone, GPT2)
    s, specs = backbone.settings, library.specs.transformer_spec
    decoder = specs.TransformerDecoderSpec(
        s.layers, s.heads, with_encoder_attention=False, **_stack_options(library, s)
    )
    spec = specs.TransformerDecoderModelSpec(decoder)
    _set_stack(decoder, backbone.stack, None)
    decoder.scale_embeddings = False
    decoder.embeddings.weight = _array(backbone.embed.tokens.weight)
    _set_positions(decoder, backbone.embed.positions)
    _set_projection(decoder, loaded.learner.model.heads["clm"], None)
    if s.logit_soft_cap is not None:
        decoder.final_logit_softcapping = np.float32(s.logit_soft_cap)
    tokens = _vocabulary(loaded)
    spec.register_vocabulary(tokens)
    _set_special_tokens(spec.config, loaded, tokens)
    return spec


def _encoder(library: Any, loaded: LoadedRun) -> Any:
    """The specification of a BERT without heads."""
    backbone = loaded.learner.model.backbone
    assert isinstance(backbone, Bert)
    s, specs, common = backbone.settings, library.specs.transformer_spec, library.specs.common_spec
    segments = backbone.embed.segments
    encoder = specs.TransformerEncoderSpec(
        s.layers,
        s.heads,
        num_source_embeddings=1 if segments is None else 2,
        embeddings_merge=common.EmbeddingsMerge.ADD,
        layernorm_embedding=True,
        **_stack_options(library, s),
    )
    spec = specs.TransformerEncoderModelSpec(encoder)
    _set_stack(encoder, backbone.stack, None)
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = _array(backbone.embed.tokens.weight)
    if segments is not None:
        encoder.embeddings[1].weight = _array(segments.weight)
    _set_positions(encoder, backbone.embed.positions)
    assert backbone.embed.norm is not None
    _set_norm(encoder.layernorm_embedding, backbone.embed.norm)
    tokens = _vocabulary(loaded)
    spec.register_vocabulary(tokens)
    spec.config.unk_token = tokens[loaded.tokenizer.unknown or 0]
    return spec


def _set_stack(spec: Any, stack: LayerStack[Any], scale: float | None) -> None:
    """Layers and final norm of an encoder or decoder."""
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, TransformerLayer | TransformerDecoderLayer)
        attention = layer_spec.self_attention
        _set_linears(attention.linear, (layer.attention.project, layer.attention.output))
        _set_norm(attention.layer_norm, layer.attention_norm)
        attentions = [attention]
        if isinstance(layer, TransformerDecoderLayer):
            cross = layer_spec.attention
            _set_linears(cross.linear, (layer.cross.query, layer.cross.source, layer.cross.output))
            _set_norm(cross.layer_norm, layer.cross_norm)
            attentions.append(cross)
        for part in attentions if scale is not None else ():
            part.queries_scale = scale
        if stack.relative is not None:
            attention.relative_attention_bias = _array(stack.relative.table.weight)
            attention.relative_attention_max_distance = np.int32(stack.relative.max_distance)
        _set_feed_forward(layer_spec.ffn, layer)
    if hasattr(spec, "layer_norm"):
        _set_norm(spec.layer_norm, stack.final_norm)


def _set_feed_forward(spec: Any, layer: TransformerLayer | TransformerDecoderLayer) -> None:
    """A feed-forward network; of a gated one, our first projection holds the gate and the value."""
    network = layer.feed_forward
    _set_norm(spec.layer_norm, layer.feed_forward_norm)
    if network.activation in GATED_ACTIVATIONS:
        gate, value = network.widen.weight.chunk(2)
        biases = (None, None) if network.widen.bias is None else network.widen.bias.chunk(2)
        _set_weights(spec.linear_0, gate, biases[0])
        _set_weights(spec.linear_0_noact, value, biases[1])
    else:
        _set_linears([spec.linear_0], [network.widen])
    _set_linears([spec.linear_1], [network.narrow])


def _set_linears(specs: Iterable[Any], modules: Iterable[Any]) -> None:
    for spec, module in zip(specs, modules, strict=True):
        _set_weights(spec, module.weight, module.bias)


def _set_weights(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _set_norm(spec: Any, norm: nn.Module) -> None:
    """A norm; a LayerNorm without bias gets one of zeros, which ctranslate2 always has."""
    weight, bias = norm.weight, getattr(norm, "bias", None)
    assert isinstance(weight, Tensor)
    spec.gamma = _array(weight)
    if hasattr(spec, "beta"):
        spec.beta = _array(weight.new_zeros(weight.shape) if bias is None else bias)


def _set_positions(spec: Any, positions: nn.Module | None) -> None:
    """Learned or sinusoidal positions as a table; rotary and relative ones are in the attention."""
    if positions is None:
        if hasattr(spec, "position_encodings"):
            delattr(spec, "position_encodings")
        return
    table = positions.weight if isinstance(positions, nn.Embedding) else positions.table
    assert isinstance(table, Tensor)
    spec.position_encodings.encodings = _array(table)


def _set_projection(decoder: Any, head: nn.Module, scale: float | None) -> None:
    """The output layer, and the scale of the states before it."""
    weight, bias = head.weight, head.bias
    assert isinstance(weight, Tensor)
    _set_weights(decoder.projection, weight, bias if isinstance(bias, Tensor) else None)
    if scale is not None:
        decoder.scale_outputs = np.float32(scale)


def _set_special_tokens(config: Any, loaded: LoadedRun, tokens: list[str]) -> None:
    tokenizer = loaded.tokenizer
    for key, token_id in (
        ("bos_token", tokenizer.start),
        ("eos_token", tokenizer.end),
        ("unk_token", tokenizer.unknown),
    ):
        setattr(config, key, tokens[token_id] if token_id is not None else tokens[tokenizer.end or 0])


def _vocabulary(loaded: LoadedRun) -> list[str]:
    """A token for each row of the embedding."""
    tokenizer, rows = loaded.tokenizer, len(loaded.learner.model.backbone.embedding().weight)
    tokens = [tokenizer.id_to_token(number) or f"<unused_{number}>" for number in range(tokenizer.vocab_size)]
    return tokens + [f"<unused_{number}>" for number in range(len(tokens), rows)]


def _array(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.detach().float().numpy())


def _text_files(loaded: LoadedRun, kind: str, notes: tuple[str, ...]) -> dict[str, str]:
    """tokenizer.json with the run's template, and a README with a program."""
    model, tokenizer = loaded.learner.model, loaded.tokenizer
    template = input_template(model, tokenizer, LM_KINDS[kind])
    start_ids = template.decoder_start_ids if kind == "encoder-decoder" else ()
    readme = render_readme(
        "ctranslate2_readme.md.jinja",
        card=read_card(loaded.run.path, loaded.recipe.name).rstrip(),
        kind=kind,
        notes=notes,
        prefix=[tokenizer.id_to_token(token_id) for token_id in start_ids[1:]],
        prompt_start=[tokenizer.id_to_token(token_id) for token_id in template.prompt_start_ids]
        if kind == "causal"
        else [],
    )
    description = describe_tokenizer(tokenizer, template)
    return {"tokenizer.json": untrusted_files.to_json(description, indent=1) + "\n", "README.md": readme}


def _library() -> Any:
    try:
        import ctranslate2
        import ctranslate2.specs
    except ImportError:
        raise MeristemError('--ctranslate2 needs ctranslate2: pip install "meristem-lm[export]"') from None
    return ctranslate2
