"""CamemBERT's config entries and weight map for transformers."""

from __future__ import annotations

from meristem.interop.families.roberta import RobertaModelType


class CamembertModelType(RobertaModelType):
    """French RoBERTa under another model type; runs are exported as RoBERTa."""

    name = "camembert"
    exportable = False
    architectures = {
        name.replace("Roberta", "Camembert", 1): heads for name, heads in RobertaModelType.architectures.items()
    }
