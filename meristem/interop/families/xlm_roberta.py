"""XLM-RoBERTa as transformers keeps it."""

from __future__ import annotations

from meristem.interop.families.roberta import Roberta


class XLMRoberta(Roberta):
    """RoBERTa in many languages, under names of its own; a run leaves as RoBERTa."""

    type = "xlm-roberta"
    leaves = False
    architectures = {name.replace("Roberta", "XLMRoberta", 1): heads for name, heads in Roberta.architectures.items()}
