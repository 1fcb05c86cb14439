"""LoRA: no change at initialization, few trainable weights, resuming, and merging when a run is loaded."""

from __future__ import annotations

import pytest
import torch
from finetune_factory import FinetuneFactory, finetune_factory
from run_factory import RunFactory

from meristem import api
from meristem.blocks import lora
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.backbone import Model
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.freezing import prepare_trainable
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import LoraSettings, StartSettings, TrainSettings

__all__ = ["finetune_factory"]

OBJECTIVE = {"bert": "mlm", "gpt2": "clm", "xlnet": "plm", "transformer": "seq2seq", "elmo": "bilm", "rnn": "seq2seq"}
LORA = {"from.lora.rank": 2, "from.lora.alpha": 4}


def model_of(family: str, tokenizer: Tokenizer) -> Model:
    model_settings = {"family": family, "layers": 2, "hidden_size": 32, "max_length": 16}
    model_settings |= {} if family in ("elmo", "rnn") else {"heads": 2}
    return build_learner(
        resolve_recipe("tiny", {"model": model_settings, "objective": OBJECTIVE[family]}), tokenizer
    ).model.eval()


def states(model: Model) -> torch.Tensor:
    ids = torch.arange(5, 17).reshape(1, -1)
    inputs = {"source": ids, "tokens": ids} if "encoder_decoder" in model.backbone.capabilities else {"tokens": ids}
    hidden = model.backbone(**inputs).last_hidden_state
    assert isinstance(hidden, torch.Tensor)
    return hidden


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlnet", "transformer", "rnn"])
def test_at_the_start_every_output_is_the_same_bit_for_bit(family: str, tokenizer: Tokenizer) -> None:
    model = model_of(family, tokenizer)
    before = states(model)
    lora.add_lora(model.backbone, 4, 8.0, ["all"])
    assert torch.equal(states(model), before)
    with torch.no_grad():
        for part in lora.lora_parameters(model.backbone):
            part.add_(0.1)
    changed = states(model)
    assert not torch.equal(changed, before)
    lora.merge_lora(model.backbone)
    assert not lora.lora_parameters(model.backbone)
    assert torch.equal(states(model), changed)


def test_the_lora_product_is_scaled_by_alpha_over_rank() -> None:
    linear = torch.nn.Linear(6, 5)
    weight = linear.weight.detach().clone()
    net = torch.nn.ModuleDict({"attention": linear})
    lora.add_lora(net, 2, 8.0, ["attention"])
    up, down = sorted(lora.lora_parameters(net), key=lambda part: part.shape[1])
    with torch.no_grad():
        up.normal_()
    torch.testing.assert_close(linear.weight, weight + 4.0 * up @ down)


@pytest.mark.parametrize(("layers", "number"), [
    (("attention",), 4), (("all",), 8), ((r"layers\.1\.feed_forward",), 2), (("attention", "narrow"), 6),
])  # fmt: skip
def test_which_layers_get_lora(layers: tuple[str, ...], number: int, tokenizer: Tokenizer) -> None:
    model = model_of("bert", tokenizer)
    maps = [module for module in model.backbone.modules() if isinstance(module, torch.nn.Linear)]
    assert len(maps) == 8
    lora.add_lora(model.backbone, 2, 2.0, layers)

    assert len(lora.lora_parameters(model.backbone)) == 2 * number


@pytest.mark.parametrize(("family", "layers"), [("elmo", ("attention",)), ("bert", ("atention",))])
def test_a_pattern_without_a_match_is_answered_with_the_names_of_layers(
    family: str, layers: tuple[str, ...], tokenizer: Tokenizer
) -> None:
    layer_names = {"elmo": r"characters\.project", "bert": r"stack\.layers\.N\.attention\.project"}[family]
    with pytest.raises(
        MeristemError, match=rf"from\.lora\.target_modules: {layers[0]} matches no linear layer .*{layer_names}"
    ):
        lora.add_lora(model_of(family, tokenizer).backbone, 2, 2.0, layers)


def test_only_lora_and_heads_are_trained_with_every_optimizer(tokenizer: Tokenizer) -> None:
    model = model_of("bert", tokenizer)
    prepare_trainable(model, StartSettings(lora=LoraSettings(rank=2, target_modules=("all",))))
    optimizers = build_optimizers(model, TrainSettings(optimizer="muon"))
    moved = {p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    free = {p for name, p in model.named_parameters() if name.startswith("heads.")} - {
        model.backbone.embedding().weight
    }
    assert moved == lora.lora_parameters(model.backbone) | free


def test_a_run_trains_lora_resumes_and_is_loaded_merged(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn(run="base")
    settings = {"from": "base", **LORA, "from.load": "all"}
    finetune_factory.learn({**settings, "train.steps": 3}, run="twice")
    finetune_factory.learn(settings, run="twice")
    finetune_factory.learn(settings, run="once")
    assert finetune_factory.losses("twice") == finetune_factory.losses("once")
    base, tuned = finetune_factory.weights("base"), finetune_factory.weights("once")
    original = "backbone.stack.layers.0.attention.project.parametrizations.weight.original"
    assert tuned[original].equal(base["backbone.stack.layers.0.attention.project.weight"])
    assert any("down" in name and tuned[name].any() for name in tuned)
    assert finetune_factory.remembered("once") == {
        n for n in tuned if "parametrizations.weight.0." in n or n.startswith("heads.")
    }
    opened = load_run(finetune_factory.root / "once", which="latest")
    plain = opened.learner.model.state_dict()
    assert set(plain) == set(base)
    assert not plain["backbone.stack.layers.0.attention.project.weight"].equal(
        base["backbone.stack.layers.0.attention.project.weight"]
    )
    finetune_factory.learn({"from": "once", "train.steps": 1}, run="third")
    assert (
        "from once: loaded: 3" in finetune_factory.output.getvalue()
        and "parametrizations" not in finetune_factory.output.getvalue()
    )
    assert isinstance(api.load(finetune_factory.root / "once").predict("the boat was warm")["label"], str)


def test_transformers_opens_what_was_merged(run_factory: RunFactory) -> None:
    transformers = pytest.importorskip("transformers")
    run_factory.train("train.steps=2", family="bert", run="base")
    run_factory.train(
        "from.path=base",
        "from.lora={rank: 2, target_modules: all}",
        "train.learning_rate=0.05",
        family="bert",
        run="tuned",
    )
    api.export(run_factory.root / "tuned", run_factory.root / "folder")
    ours, theirs = (
        load_run(run_factory.root / "tuned"),
        transformers.AutoModel.from_pretrained(run_factory.root / "folder").eval(),
    )
    ids = torch.tensor([ours.tokenizer.encode("the painter sold the boats").ids.tolist()])
    with torch.no_grad():
        hidden = ours.learner.model.backbone(tokens=ids).last_hidden_state
        hidden_states = theirs(input_ids=ids).last_hidden_state
        hidden_before = load_run(run_factory.root / "base").learner.model.backbone(tokens=ids).last_hidden_state
    torch.testing.assert_close(hidden_states, hidden, atol=1e-5, rtol=0)
    assert not torch.allclose(hidden, hidden_before, atol=1e-3), "nothing was learned, so nothing was shown"
