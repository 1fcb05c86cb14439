"""CamemBERT as transformers keeps it."""

from __future__ import annotations

from meristem.interop.families.roberta import Roberta


class Camembert(Roberta):
    """RoBERTa in French, under names of its own; a run leaves as RoBERTa."""

    type = "camembert"
    leaves = False
    architectures = {name.replace("Roberta", "Camembert", 1): heads for name, heads in Roberta.architectures.items()}
