"""N-grams counted beside the encoder: what they add to a classifier, a pair and a tagger, and how both are weighed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).parent))

from small import close, small

from meristem.api import resolve_task_recipe
from meristem.blocks.heads.hashed_linear import HashedLinear
from meristem.config.errors import RecipeError
from meristem.data.ngram_features import hash_features, word_features
from meristem.evaluation.task_predictions import fit_mixture
from meristem.interfaces.sample import Sample
from meristem.tasks.components.ngram_logits import WORD_SCALE, fit_log_mixture
from meristem.training.privacy.privacy_checks import refuse_shared_samples

BUCKETS = 4096
TEXTS = [("the soup was warm", "good"), ("a cold soup", "bad"), ("warm bread", "good"), ("cold old bread", "bad")]
SAMPLES = [Sample(inputs={"text": text}, gold=label, location="a.tsv:1") for text, label in TEXTS]


def tagged(words: str, tags: str) -> Sample:
    split, text, offsets, start = tuple(words.split()), words, [], 0
    for word in split:
        offsets.append((start, start + len(word)))
        start += len(word) + 1
    inputs = {"words": split, "text": text, "offsets": tuple(offsets)}
    return Sample(inputs=inputs, gold=tuple(tags.split()), location="a.conll:1")


SENTENCES = [tagged("she walked home", "P V A"), tagged("the long walk ended", "D J N V"), tagged("they walk", "P V")]


def test_words_behind_the_models_maximum_length_count() -> None:
    """Both texts are the same to the encoder, which truncates them."""
    start = " ".join(["soup"] * 40)
    samples = [Sample(inputs={"text": f"{start} {end}"}, gold=end, location="a.tsv:1") for end in ("good", "bad")]
    plain, wide = (small("classification", samples, max_length=8, ngram_buckets=size) for size in (0, BUCKETS))
    for model in (plain, wide):
        model.learn(60)
    assert plain.score()["accuracy"] == 0.5
    assert wide.score()["accuracy"] == 1.0


def test_each_part_learns_by_itself() -> None:
    """In training the loss is the mean of those of the parts; the logits that predict are their weighted sum."""
    model = small("classification", SAMPLES, ngram_buckets=BUCKETS)
    task, batch = model.task, model.batch()
    model.learner.train()
    with torch.no_grad():
        hidden = task.encode(model.learner.model, batch)
    with torch.no_grad():
        deep, wide, values = task.parts.head.scored_parts(model.learner.model, hidden, batch)
    expected = (F.cross_entropy(deep, values, reduction="sum") + F.cross_entropy(wide, values, reduction="sum")) / 2
    assert float(task.loss(model.learner.model, hidden, batch).loss_sums["classification"].detach()) == pytest.approx(
        float(expected)
    )
    head = model.learner.model.heads["ngrams"]
    assert isinstance(head, HashedLinear)
    head.log_mixture.copy_(torch.tensor([2.0, 3.0]).log())
    logits = task.parts.head.logit_layer.logits(model.learner.model, hidden, batch)
    assert torch.allclose(logits, 2 * deep + 3 * wide)


def test_validation_samples_weigh_the_parts() -> None:
    """The part that is mostly right gets the weight, and a part of noise nearly none."""
    values = torch.arange(400) % 2
    is_wrong = torch.arange(400) % 5 == 0  # of both labels
    right = F.one_hot((values + is_wrong) % 2, 2).float() * 0.2
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(1)) * 3

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, values, reduction="sum")

    for deep, wide, better in ((noise, right, 1), (right, noise, 0)):
        weights = fit_log_mixture(deep, wide, loss).exp()
        assert weights[better] > 5
        assert weights[1 - better] < 0.05
        mixed = weights[0] * deep + weights[1] * wide
        assert loss(mixed) < min(loss(deep), loss(wide))


def test_the_mixture_is_fitted_in_evaluation_and_saved_with_the_weights() -> None:
    model = small("classification", SAMPLES * 20, ngram_buckets=BUCKETS)
    model.learn(3)
    before = model.learner.model.state_dict()["heads.ngrams.log_mixture"].clone()
    fit_mixture(model.learner, model.task, model.task.encode_samples(model.samples))
    after = model.learner.model.state_dict()["heads.ngrams.log_mixture"]
    assert not torch.equal(before, after)
    again = after.clone()
    fit_mixture(model.learner, model.task, model.task.encode_samples(model.samples))
    assert torch.equal(again, model.learner.model.state_dict()["heads.ngrams.log_mixture"])


def test_a_model_without_ngrams_has_nothing_to_weigh() -> None:
    model = small("classification", SAMPLES)
    fit_mixture(model.learner, model.task, model.task.encode_samples(SAMPLES))
    assert not any("ngrams" in name for name in model.learner.model.state_dict())


@pytest.mark.parametrize("crf", [False, True])
def test_a_word_has_the_logits_of_its_features(crf: bool) -> None:
    model = small("tagging", SENTENCES, ngram_buckets=BUCKETS, crf=crf)
    task, batch, learned = model.task, model.batch(), model.learner.model
    model.learner.eval()
    with torch.no_grad():
        hidden = task.encode(learned, batch)
    before = task.parts.head._logits(learned, hidden, batch, batch.targets["read"]["at"])
    with torch.no_grad():
        learned.heads["ngrams"].weight.normal_()
    added = task.parts.head._logits(learned, hidden, batch, batch.targets["read"]["at"]) - before
    features = [features for sample in SENTENCES for features in word_features(sample.inputs["words"])]
    weight = learned.heads["ngrams"].weight
    expected = torch.stack([weight[torch.from_numpy(hash_features(item, BUCKETS))].sum(0) for item in features])
    share = 1.0 if crf else 0.5  # a CRF scores the sum; otherwise both have half the weight until validation
    assert torch.allclose(added, share * WORD_SCALE * expected, atol=1e-4)


def test_words_without_a_gold_tag_lend_no_features_to_others() -> None:
    """The logits of the words in the loss are those of prediction."""
    partly = [tagged("she walked home", "P _ A"), *SENTENCES[1:]]
    model = small("tagging", partly, ngram_buckets=BUCKETS)
    task, batch, learned = model.task, model.batch(), model.learner.model
    model.learner.eval()
    with torch.no_grad():
        learned.heads["ngrams"].weight.normal_()
    hidden = task.encode(learned, batch)
    read, target = batch.targets["read"], batch.targets["tagging"]
    everything, known = (task.parts.head._logits(learned, hidden, batch, at) for at in (read["at"], target["at"]))
    assert len(known) == len(everything) - 1
    assert torch.allclose(everything[read["values"] >= 0], known, atol=1e-5)


def test_a_tagger_and_a_pair_overfit_and_padding_changes_nothing() -> None:
    pairs = [
        Sample(inputs={"text": text, "text_b": TEXTS[0][0]}, gold=label, location="a.tsv:1") for text, label in TEXTS
    ]
    for name, samples in (("tagging", SENTENCES), ("pair", pairs)):
        model = small(name, samples, ngram_buckets=BUCKETS)
        model.learn(80, until=0.01)
        assert model.score()["accuracy"] == 1.0
        if name == "pair":
            assert close(model.answers(), [model.answers([sample])[0] for sample in samples])


def test_private_training_is_refused() -> None:
    settings = {"task.ngram_buckets": BUCKETS, "train.privacy.epsilon": 8}
    with pytest.raises(RecipeError, match="ngram_buckets=0"):
        refuse_shared_samples(resolve_task_recipe("classification", settings))


def test_siamese_texts_have_no_ngrams() -> None:
    with pytest.raises(RecipeError, match="ngram_buckets"):
        resolve_task_recipe("pair", {"task.siamese": True, "task.ngram_buckets": BUCKETS})
