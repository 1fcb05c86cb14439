"""Sentence pairs: two texts → a label (entailment, paraphrase) or a similarity score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import TaskParts
from meristem.interfaces.task_signature import InputField, TaskSignature
from meristem.tasks.components.classification_head import ClassificationHead
from meristem.tasks.components.classification_metrics import ClassificationMetrics
from meristem.tasks.components.encoder_settings import EncoderSettings
from meristem.tasks.components.label_output import CLASSIFY, LabelOutput
from meristem.tasks.components.label_set import LabelSet, LabelSettings, fit_label_settings
from meristem.tasks.components.ngram_logits import TEXT_SCALE, NgramLogits, NgramSettings
from meristem.tasks.components.pooled_logits import PooledLogits, SiameseLogits
from meristem.tasks.components.state_reader import encoder_parts
from meristem.tasks.components.text_encoder import Arrangement, TextEncoder
from meristem.tokenizers.tokenizer import Tokenizer


class PairTaskSettings(NgramSettings, LabelSettings, EncoderSettings):
    """Settings of sentence pairs."""

    renamed: ClassVar[dict[str, str]] = {
        "orders": "pair_orders",
    }

    needs: ClassVar[SettingConditions] = {
        "pair_orders": (when("siamese", False),),
        "ngram_buckets": (when("siamese", False),),
    }

    name: Literal["pair"] = "pair"
    """The task's name."""
    siamese: bool = False
    """Encode each text separately: cosine similarity for regression, [u, v, |u − v|] for labels (Sentence-BERT)."""
    pair_orders: Literal["one", "both"] | None = None
    """both: encode the pair in both orders and add the vectors; the default for regression on causal models."""

    @property
    def arrangement(self) -> Arrangement:
        """Both orders for similarity on causal models: it is symmetric, they are not (Radford et al. 2018)."""
        if self.siamese:
            return "separate"
        is_causal_similarity = self.backbone_mode == "causal" and self.problem_type == "regression"
        orders = self.pair_orders or ("both" if is_causal_similarity else "one")
        return "both_orders" if orders == "both" else "joined"


class PairTask(Task[PairTaskSettings]):
    """p(label | text, text_b), or a number."""

    Settings = PairTaskSettings
    name = "pair"
    sample_type = "pair"
    signature = TaskSignature(
        takes="two texts",
        inputs=(
            InputField(name="text", help="One or several texts.", example="Ada walked to the old harbour."),
            InputField(
                name="text_b",
                help="The second text of a pair.",
                aliases=("text_pair",),
                example="She went to the port.",
            ),
        ),
        output="label",
        export_head="classification",
        route=CLASSIFY,
    )

    @classmethod
    def fit_settings(cls, settings: PairTaskSettings, samples: Sequence[Sample]) -> PairTaskSettings:
        """The settings with problem type, labels and class weights."""
        return fit_label_settings(settings, samples)

    @classmethod
    def compose(cls, settings: PairTaskSettings, tokenizer: Tokenizer) -> TaskParts:
        """A pair encoder with a head on the pair's vector, or on the vectors of both texts."""
        if settings.siamese and settings.pair_orders == "both":
            raise MeristemError(
                "task.pair_orders: siamese texts are encoded separately and have no order; leave it out"
            )
        template, states, lm_loss = encoder_parts(settings, cls.name, tokenizer)
        labels = LabelSet(settings, cls.name)
        ngrams = None if settings.siamese else NgramLogits.build(settings, labels.num_classes, TEXT_SCALE)
        is_cosine = settings.siamese and labels.problem_type == "regression"
        if settings.siamese:
            num_classes = None if is_cosine else labels.num_classes
            logits: PooledLogits = SiameseLogits(states, cls.name, num_classes, settings.pooling or "mean")
        else:
            logits = PooledLogits(states, cls.name, labels.num_classes, settings.pooling, ngrams=ngrams)
        return TaskParts(
            encoder=TextEncoder(
                template, ("text", "text_b"), cls.name, labels.target, lm_loss, settings.arrangement, ngrams
            ),
            states=states,
            head=ClassificationHead(cls.name, logits, labels, settings.class_weights),
            metrics=ClassificationMetrics(labels),
            output=LabelOutput(labels, "similarity", labels.target_range if is_cosine else None),
            auxiliary_loss=lm_loss,
        )
