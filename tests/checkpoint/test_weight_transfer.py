"""Loading weights into a model: exactly, or those that match."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from meristem.checkpoint.weight_transfer import load_exact, load_matching
from meristem.config.errors import MeristemError


class Tied(nn.Module):
    """An embedding whose head is the same parameter, a layer, and a buffer."""

    def __init__(self, words: int = 5, width: int = 4, seed: int = 0, tied: bool = True) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(words, width)
        self.layer = nn.Linear(width, width)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(()))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=rng))


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_an_exact_restore_is_bit_for_bit_and_keeps_the_tie() -> None:
    tied, other = Tied(seed=1), Tied(seed=2)
    load_exact(other, copied(tied))
    assert all(torch.equal(value, tied.state_dict()[name]) for name, value in other.state_dict().items())
    assert other.head.weight is other.embedding.weight


def test_a_restore_into_another_model_names_every_difference_and_changes_nothing() -> None:
    model = Tied(words=6)
    before = copied(model)
    tensors = copied(Tied(words=5)) | {"pooler.weight": torch.ones(1)}
    del tensors["scale"]
    tensors["layer.bias"] = tensors["layer.bias"].double()
    with pytest.raises(MeristemError) as error:
        load_exact(model, tensors)
    for line in (
        "embedding.weight is 6×4 float32 here, 5×4 float32 in the checkpoint",
        "layer.bias is 4 float32 here, 4 float64 in the checkpoint",
        "pooler.weight is not in the model",
        "scale is missing in the checkpoint",
    ):
        assert line in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_restore_refuses_two_tensors_where_the_model_has_one() -> None:
    with pytest.raises(MeristemError, match=r"head\.weight and embedding\.weight are one tensor here, two in the"):
        load_exact(Tied(), copied(Tied(tied=False)))


def test_a_transfer_reports_loaded_missing_and_unexpected_tensors() -> None:
    model = Tied(words=6, seed=1)
    before = copied(model)
    tensors = copied(Tied(words=5, seed=2)) | {"pooler.weight": torch.ones(1)}
    del tensors["layer.bias"]
    report = load_matching(model, tensors)
    assert set(report.loaded_keys) == {"scale", "layer.weight"}
    assert set(report.missing_keys) == {"embedding.weight", "head.weight", "layer.bias"}
    assert report.unexpected_keys == ("pooler.weight",)
    assert report.mismatched_keys["embedding.weight"] == ((6, 4), (5, 4))
    assert torch.equal(model.layer.weight, tensors["layer.weight"])
    assert torch.equal(model.embedding.weight, before["embedding.weight"])
    assert torch.equal(model.layer.bias, before["layer.bias"])
    summary = report.summary()
    assert "loaded: 2 of 5 tensors" in summary
    assert "embedding.weight (6×4 here, 5×4 there)" in summary
    assert "layer.bias" in summary and "not used: pooler.weight" in summary


def test_only_names_that_pass_the_filter_are_loaded() -> None:
    model = Tied(seed=1)
    before, tensors = copied(model), copied(Tied(seed=2))
    report = load_matching(model, tensors, name_filter=lambda name: name.startswith("embedding."))
    assert set(report.loaded_keys) == {"embedding.weight", "head.weight"}
    assert set(report.missing_keys) == {"layer.weight", "layer.bias", "scale"}
    assert report.unexpected_keys == () and report.mismatched_keys == {}
    assert torch.equal(model.embedding.weight, tensors["embedding.weight"])
    assert torch.equal(model.layer.weight, before["layer.weight"])


def test_one_name_of_a_tied_tensor_is_enough() -> None:
    model = Tied(seed=1)
    tensors = copied(Tied(seed=2))
    del tensors["embedding.weight"]
    report = load_matching(model, tensors)
    assert report.missing_keys == () and set(report.loaded_keys) == set(model.state_dict())
    assert torch.equal(model.embedding.weight, tensors["head.weight"])


def test_an_untied_head_does_not_overwrite_the_embedding_it_is_tied_to_here() -> None:
    model, untied = Tied(seed=1), copied(Tied(seed=2, tied=False))
    report = load_matching(model, untied)
    assert torch.equal(model.embedding.weight, untied["embedding.weight"])
    assert report.unexpected_keys == ("head.weight",) and "head.weight" not in report.loaded_keys


def test_a_tied_file_fills_an_untied_model() -> None:
    model, tensors = Tied(seed=1, tied=False), Tied(seed=2).state_dict()
    assert load_matching(model, dict(tensors)).missing_keys == ()
    assert torch.equal(model.head.weight, model.embedding.weight)
    assert model.head.weight.data_ptr() != model.embedding.weight.data_ptr()


def test_types_are_converted_in_a_transfer() -> None:
    model, other = Tied(seed=1), Tied(seed=2).to(torch.bfloat16)
    load_matching(model, copied(other))
    assert model.layer.weight.dtype is torch.float32
    assert torch.equal(model.layer.weight, other.layer.weight.float())


def test_a_long_list_is_cut_in_the_summary() -> None:
    report = load_matching(Tied(), {f"other.{number}": torch.ones(1) for number in range(100)})
    assert "other.5 and 94 more" in report.summary()
    assert len(report.summary()) < 400
