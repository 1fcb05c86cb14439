"""Training steps of other implementations: transformers' XLNet, BART, T5 and ELECTRA, and a plain LSTM seq2seq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.inputs.batch import Batch
from meristem.training.precision import Precision

LAYERS, HIDDEN_SIZE, HEADS, FFN_SIZE, GATED_FFN_SIZE = 4, 256, 4, 1024, 683
ELECTRA_EMBEDDING, GENERATOR_DIVISOR, DISCRIMINATOR_WEIGHT = 128, 4, 50.0
RNN_LAYERS = 2


@dataclass(frozen=True, kw_only=True)
class BaselineCase:
    """What a baseline is built for: the batch that ours trains on, its vocabulary and length."""

    batch: Batch
    vocabulary: int
    length: int


LossFunction = Callable[[], Tensor]


def optimizer_step(model: nn.Module, loss: LossFunction, precision: Precision) -> Callable[[], None]:
    """A step with torch's fused AdamW; bfloat16 is autocast."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            total = loss()
        total.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def xlnet(case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    """Permutation language modelling with transformers' XLNet."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    tokens, order, slots = (case.batch.inputs[key] for key in ("tokens", "order", "slots"))
    config = XLNetConfig(
        vocab_size=case.vocabulary, d_model=HIDDEN_SIZE, n_layer=LAYERS, n_head=HEADS, d_inner=FFN_SIZE, dropout=0.0,
        use_mems_train=False,
    )  # fmt: skip
    model: Any = XLNetLMHeadModel(config).train()
    mapping = F.one_hot(slots, tokens.shape[1]).float()
    hidden = ((order[:, None] > order[:, :, None]).float() + torch.diag_embed(mapping.sum(1))).clamp(max=1)
    labels = tokens.gather(1, slots)
    return model, lambda: model(input_ids=tokens, perm_mask=hidden, target_mapping=mapping, labels=labels).loss


def bart(case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    """transformers' BART with SDPA."""
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=case.vocabulary, d_model=HIDDEN_SIZE, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=FFN_SIZE,
        decoder_ffn_dim=FFN_SIZE, max_position_embeddings=case.length, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    return _seq2seq_loss(BartForConditionalGeneration(config).train(), case)


def t5(case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    """transformers' T5 1.1 (gated GELU) with a tied output."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=case.vocabulary, d_model=HIDDEN_SIZE, d_kv=HIDDEN_SIZE // HEADS, d_ff=GATED_FFN_SIZE,
        num_layers=LAYERS, num_heads=HEADS, dropout_rate=0.0, feed_forward_proj="gated-gelu", decoder_start_token_id=0,
    )  # fmt: skip
    return _seq2seq_loss(T5ForConditionalGeneration(config).train(), case)


def _seq2seq_loss(model: Any, case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    inputs = {
        "input_ids": case.batch.inputs["source"],
        "decoder_input_ids": case.batch.inputs["tokens"],
        "labels": _labels(case),
        "use_cache": False,
    }
    return model, lambda: model(**inputs).loss


def _labels(case: BaselineCase) -> Tensor:
    return case.batch.targets["seq2seq"]["values"].view_as(case.batch.inputs["tokens"])


class _Electra(nn.Module):
    """transformers' generator and discriminator with tied embeddings, trained together as in the paper."""

    def __init__(self, case: BaselineCase) -> None:
        from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

        super().__init__()
        common = {
            "vocab_size": case.vocabulary, "embedding_size": ELECTRA_EMBEDDING, "num_hidden_layers": LAYERS,
            "max_position_embeddings": case.length, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            "attn_implementation": "sdpa",
        }  # fmt: skip
        self.generator: Any = ElectraForMaskedLM(
            ElectraConfig(
                **common,
                hidden_size=HIDDEN_SIZE // GENERATOR_DIVISOR,
                num_attention_heads=HEADS // GENERATOR_DIVISOR,
                intermediate_size=FFN_SIZE // GENERATOR_DIVISOR,
            )
        )
        self.discriminator: Any = ElectraForPreTraining(
            ElectraConfig(**common, hidden_size=HIDDEN_SIZE, num_attention_heads=HEADS, intermediate_size=FFN_SIZE)
        )
        self.discriminator.electra.embeddings = self.generator.electra.embeddings

    def forward(self, tokens: Tensor, positions: Tensor, values: Tensor) -> Tensor:
        """Loss of both: masked prediction, and detection of sampled replacements."""
        logits = self.generator(input_ids=tokens).logits.flatten(0, 1)[positions].float()
        generator_loss = F.cross_entropy(logits, values)
        sampled = torch.multinomial(logits.detach().softmax(1), 1)[:, 0]
        corrupted = tokens.flatten().index_copy(0, positions, sampled)
        replaced = torch.zeros_like(corrupted, dtype=torch.bool).index_copy(0, positions, sampled != values)
        scores = self.discriminator(input_ids=corrupted.view_as(tokens)).logits.flatten().float()
        return generator_loss + DISCRIMINATOR_WEIGHT * F.binary_cross_entropy_with_logits(scores, replaced.float())


def electra(case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    """Replaced token detection with transformers' two ELECTRA models."""
    model, targets = _Electra(case).train(), case.batch.targets["generator"]
    return model, lambda: model(case.batch.inputs["tokens"], targets["at"], targets["values"])


class _LSTMSeq2Seq(nn.Module):
    """Luong's model as one writes it with torch: nn.LSTM over all steps, attention by two products, tied output."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, HIDDEN_SIZE)
        half = HIDDEN_SIZE // 2
        self.encoder = nn.LSTM(HIDDEN_SIZE, half, RNN_LAYERS, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(HIDDEN_SIZE, HIDDEN_SIZE, RNN_LAYERS, batch_first=True)
        self.keys = nn.Linear(HIDDEN_SIZE, HIDDEN_SIZE, bias=False)
        self.join = nn.Linear(2 * HIDDEN_SIZE, HIDDEN_SIZE, bias=False)
        self.output = nn.Linear(HIDDEN_SIZE, vocabulary)
        self.output.weight = self.embedding.weight

    def forward(self, source: Tensor, tokens: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of the target."""
        encoded, (hidden, cell) = self.encoder(self.embedding(source))
        # both directions of a layer, concatenated, start the decoder's layer
        start = tuple(
            state.unflatten(0, (RNN_LAYERS, 2)).transpose(1, 2).flatten(2).contiguous() for state in (hidden, cell)
        )
        states, _ = self.decoder(self.embedding(tokens), start)
        weights = (states @ self.keys(encoded).mT).softmax(-1)
        joined = self.join(torch.cat([weights @ encoded, states], -1)).tanh()
        return F.cross_entropy(self.output(joined).flatten(0, 1).float(), labels.flatten())


def rnn(case: BaselineCase) -> tuple[nn.Module, LossFunction]:
    """The plain LSTM seq2seq."""
    model = _LSTMSeq2Seq(case.vocabulary).train()
    return model, lambda: model(case.batch.inputs["source"], case.batch.inputs["tokens"], _labels(case))


BASELINES = {"xlnet": xlnet, "bart": bart, "t5": t5, "electra": electra, "rnn": rnn}
