"""Training data of a federated run as the server has it: names of clients and counts, but no text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import Recipe
from meristem.dataset.feed import Feed
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.generation.head_selection import lm_kinds, lm_kinds_for
from meristem.interfaces.backbone import Model
from meristem.interfaces.objective import Objective
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.training_data import EvaluateFn, TrainingData
from meristem.training.run_logger import RunLogger
from meristem.trust.federated.clients_file import Federation
from meristem.trust.federated.federated_report import write_federated_report


@dataclass(kw_only=True)
class FederatedData(TrainingData):
    """What the model card and the report of a federated run can say about its text."""

    federation: Federation
    tokenizer: Tokenizer
    tokenizer_description: str
    distributed: DistributedContext = SINGLE_PROCESS
    final_metrics: dict[str, float] = field(default_factory=dict)
    """Loss of the final weights on the clients' own validation text."""

    @property
    def num_tokens(self) -> int:
        """Unknown: the clients' texts are not counted here."""
        return 0

    def build_feeds(
        self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int
    ) -> dict[str, Feed]:
        """None: the batches are the clients'."""
        return {}

    def build_evaluator(
        self, recipe: Recipe, learner: Learner, split: str, log: Callable[[str], None]
    ) -> EvaluateFn | None:
        """What the clients have answered about the final weights; there is no text to evaluate on."""
        return None if split == "test" or not self.final_metrics else lambda: self.final_metrics

    def describe_data(self) -> list[str]:
        """The clients, and the choice of the tokenizer."""
        return [f"the text of {len(self.federation.clients)} clients", self.tokenizer_description]

    def preview_samples(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """None: there is no text."""
        return []

    def example_commands(self, run_path: str, model: Model) -> list[str]:
        """Commands with a text of the user's own, since none of the clients' is known."""
        fill = [f'meristem fill {run_path} "a text with a [MASK]"'] if lm_kinds_for(model, "fill") else []
        generate = [f'meristem generate {run_path} --prompt "The"'] if "causal" in lm_kinds(model) else []
        return [*fill, *generate, f"meristem evaluate {run_path} --data TEXT.txt"]

    def source_lines(self) -> list[str]:
        """The clients, for the model card."""
        names = ", ".join(self.federation.names[:20]) + (", …" if len(self.federation.names) > 20 else "")
        return [
            f"{len(self.federation.clients)} clients ({names}); their text did not leave them (federated training)",
            self.tokenizer_description,
        ]

    def write_reports(self, run: RunFolder, learner: Learner, logger: RunLogger) -> list[str]:
        """report.html and report.json; lines on what was shared for the model card."""
        return write_federated_report(run, self.federation, self.tokenizer_description)
