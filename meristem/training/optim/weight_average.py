"""Exponential moving average (EMA) of weights (Polyak and Juditsky 1992): what a run is evaluated and saved with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from meristem.config.errors import MeristemError

TRAINED_KEY = "trained"
"""Optimizer state entry of a checkpoint: the weights that training continues from, beside the averaged ones."""


class WeightAverage:
    """The average of all parameters, in their precision.

    In a checkpoint the model is the averaged one, which everything that loads a run then uses; the weights that
    training continues from are saved with the optimizer.
    """

    def __init__(self, parameter_names: Mapping[nn.Parameter, str], decay: float) -> None:
        self._names, self._decay = dict(parameter_names), decay
        self._averages = {parameter: parameter.detach().clone() for parameter in self._names}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average in the weights after step number `step` (from 0).

        In a short run the average would be dominated by the initial weights: until the decay of the setting is reached,
        it spans about the last tenth of the steps so far.
        """
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self._averages.values()), list(self._averages), 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights inside, and those that are trained after it."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """Exchange the weights of the model with the averaged ones."""
        for parameter, average in self._averages.items():
            self._averages[parameter], parameter.data = parameter.data, average

    def trained_tensors(self) -> dict[str, Tensor]:
        """While the average is applied: the trained weights as `name/trained`."""
        return {f"{self._names[parameter]}/{TRAINED_KEY}": value for parameter, value in self._averages.items()}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the trained weights into the model, which has just got the averaged ones of the same checkpoint."""
        expected = {f"{name}/{TRAINED_KEY}": parameter for parameter, name in self._names.items()}
        wrong = [
            key
            for key, parameter in expected.items()
            if (value := tensors.get(key)) is None
            or (value.shape, value.dtype) != (parameter.shape, parameter.dtype)
            or not bool(torch.isfinite(value).all())
        ]
        if wrong:
            raise MeristemError(
                f"the checkpoint's optimizer state was changed, so the run cannot resume from it: {wrong[0]} is "
                "missing or invalid"
            )
        for key, parameter in expected.items():
            parameter.copy_(tensors[key])
