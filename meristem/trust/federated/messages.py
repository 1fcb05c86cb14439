"""What the server sends to a client in a round, and everything that a client may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from meristem.config.recipe import PretrainRecipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.settings import FederatedSettings

TaskKind = Literal["train", "evaluate"]
REPORTED_METRICS = frozenset({"loss", "validation_loss", "validation_tokens", "steps"})
"""The numbers besides weights and counts that a client may answer with; no others leave it."""


@dataclass(frozen=True, kw_only=True)
class ClientTask:
    """What a client is asked to do with the global weights in a round."""

    kind: TaskKind
    round_number: int
    weights: Mapping[str, Tensor]
    """The global weights: name → tensor."""
    recipe: PretrainRecipe
    """Model, objective and training settings; its corpus and paths are not used by clients."""
    tokenizer: Tokenizer
    settings: FederatedSettings


@dataclass(frozen=True, kw_only=True)
class ClientReply:
    """What leaves a client: an update of the weights (none from an evaluation), counts and a few numbers."""

    client: str
    kind: TaskKind
    round_number: int
    update: Update = field(default_factory=dict)
    weight: float = 1.0
    """Weight of the update in the mean."""
    tokens: int = 0
    """Tokens trained on in this round."""
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.metrics) - REPORTED_METRICS):
            raise ValueError(f"{unknown[0]} is not among the numbers that may leave a client")

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.update.values())


@dataclass(frozen=True, kw_only=True)
class ClientFailure:
    """A client that did not answer, and why."""

    client: str
    reason: str
