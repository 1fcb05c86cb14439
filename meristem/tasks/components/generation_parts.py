"""The parts of a text generation task: layout, encoder, states, generator and output."""

from __future__ import annotations

from meristem.generation.source_target_layout import SourceTargetLayout
from meristem.interfaces.task_parts import InputEncoder, TaskMetrics, TaskParts
from meristem.tasks.components.generation_settings import GenerationSettings
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.sequence_generator import SequenceGenerator, SequenceStates
from meristem.tasks.components.text_metrics import TextOutput
from meristem.tokenizers.tokenizer import Tokenizer


def generation_parts(
    settings: GenerationSettings,
    tokenizer: Tokenizer,
    layout: SourceTargetLayout,
    encoder: InputEncoder,
    metrics: TaskMetrics,
    output_key: str,
    *,
    with_gold_loss: bool = False,
) -> TaskParts:
    """Parts with the loss of the layout's objective and beam search."""
    states, sampling = SequenceStates(layout), settings.sampling(layout.max_target_tokens)
    return TaskParts(
        encoder=encoder,
        states=states,
        head=SequenceGenerator(states, tokenizer, sampling, count=settings.beams, with_gold_loss=with_gold_loss),
        metrics=metrics,
        output=TextOutput(output_key),
        auxiliary_loss=LanguageModelLoss(settings.lm_weight),
    )
