"""XLM-RoBERTa's config entries and weight map for transformers."""

from __future__ import annotations

from meristem.interop.families.roberta import RobertaModelType


class XLMRobertaModelType(RobertaModelType):
    """Multilingual RoBERTa under another model type; runs are exported as RoBERTa."""

    name = "xlm-roberta"
    exportable = False
    architectures = {
        name.replace("Roberta", "XLMRoberta", 1): heads for name, heads in RobertaModelType.architectures.items()
    }
