"""Settings of differentially private training (`train.privacy`)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from meristem.config.settings import Settings


class PrivacySettings(Settings):
    """Differentially private training (DP-SGD, Abadi et al. 2016): each unit changes the weights within a budget."""

    foreign_names: ClassVar[dict[str, str]] = {
        "target_epsilon": "epsilon",
        "target_delta": "delta",
        "max_grad_norm": "clip",
        "max_per_sample_grad_norm": "clip",
        "l2_norm_clip": "clip",
        "noise_multiplier": "the noise is found from epsilon, delta, the number of steps and the sampling rate",
    }

    epsilon: float = Field(gt=0, le=100)
    """Privacy budget ε of the whole run, reached at its last step; the noise is found from it."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Probability δ with which the guarantee may fail; must be below one in the number of units."""
    clip: float = Field(1.0, gt=0)
    """Largest norm of the gradient of one unit (document or sample): larger ones are scaled down to it."""
    unit: Literal["auto", "document", "sample"] = "auto"
    """What is protected: a document in pretraining, a labelled sample in fine-tuning; another one is refused."""
    max_rows_per_document: int = Field(1, ge=1, le=1024)
    """Rows of a long document (or windows of a long sample) in one step at most, drawn at random: together one unit."""
    accountant: Literal["pld", "rdp"] = "pld"
    """Accountant of dp-accounting: privacy loss distributions (pld, tighter) or Rényi differential privacy (rdp)."""
    gradients: Literal["auto", "ghost", "per_sample"] = "auto"
    """Per-sample gradients: by ghost clipping where it is exact (auto), always, or by one backward pass per unit."""
    noise_seed: int | None = Field(None, ge=0)
    """Seed of sampling and noise, for experiments: who knows it can subtract the noise; unless set, a secret one."""
