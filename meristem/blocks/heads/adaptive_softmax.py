"""Adaptive softmax (Grave et al. 2017): rare tokens in clusters, which most predictions need not score."""

# N predictions, D hidden size, V vocabulary, F frequent tokens (the shortlist), R clusters of rarer tokens

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.heads.accuracy import target_rank
from meristem.blocks.heads.vocabulary import MIN_CHUNK_ROWS, VocabularyHead, VocabularyLoss, chunked_cross_entropy
from meristem.config.errors import MeristemError


class AdaptiveSoftmaxHead(VocabularyHead):
    """p(token) from the shortlist, or p(cluster) · p(token | cluster); token ids are sorted by falling frequency."""

    is_linear = False

    def __init__(self, embedding: nn.Embedding, cutoffs: Sequence[int], *, init_std: float) -> None:
        super().__init__(embedding, bias=True)
        vocab_size = embedding.num_embeddings
        if list(cutoffs) != sorted(set(cutoffs)) or cutoffs[0] < 1:
            raise MeristemError(f"model.adaptive_cutoffs: {list(cutoffs)} must be positive and strictly increasing")
        self.cutoffs = [cutoff for cutoff in cutoffs if cutoff < vocab_size] + [vocab_size]
        self.shortlist_size = self.cutoffs[0]
        self.cluster_sizes = [stop - start for start, stop in pairwise([0, *self.cutoffs])]
        self.bands = nn.Parameter(torch.empty(len(self.cluster_sizes) - 1, embedding.embedding_dim))
        self.bands_bias = nn.Parameter(torch.zeros(len(self.cluster_sizes) - 1))
        nn.init.normal_(self.bands, std=init_std)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → log-probabilities [..., V]; used as logits they give the same distribution."""
        (weight, bias), *rest = self._cluster_weights()
        head_log_probs = F.linear(self.apply_transform(states), weight, bias).log_softmax(-1)
        log_probs = [head_log_probs[..., : self.shortlist_size]]
        for cluster, (weight, bias) in enumerate(rest):
            cluster_log_probs = F.linear(self.apply_transform(states), weight, bias).log_softmax(-1)
            log_probs.append(head_log_probs[..., self.shortlist_size + cluster, None] + cluster_log_probs)
        return torch.cat(log_probs, -1)

    def compute_loss(
        self,
        states_ND: Tensor,
        targets_N: Tensor,
        *,
        smoothing: float = 0.0,
        l1: float = 0.0,
        uniform_N: Tensor | None = None,
    ) -> VocabularyLoss:
        """The summed loss; the tokens of a cluster are scored only where the target is one of them."""
        if smoothing or l1 or uniform_N is not None:
            raise MeristemError(
                "objective: label_smoothing, l1_outputs and sampled tokens need the logits of the whole vocabulary, "
                "which an adaptive softmax does not compute; leave them out, or set model.adaptive_cutoffs=[]"
            )
        hidden = self.apply_transform(states_ND)
        if torch.is_grad_enabled() and (hidden.requires_grad or self.weight.requires_grad):
            return self._loss_with_grad(hidden, targets_N)
        return self._loss_without_grad(hidden, targets_N)

    def _loss_with_grad(self, hidden_ND: Tensor, targets_N: Tensor) -> VocabularyLoss:
        boundaries = torch.tensor(self.cutoffs[:-1], device=targets_N.device)
        cluster_N = torch.bucketize(targets_N.contiguous(), boundaries, right=True)
        (weight, bias), *rest = self._cluster_weights()
        head_targets = torch.where(cluster_N == 0, targets_N, self.shortlist_size + cluster_N - 1)
        losses, total = chunked_cross_entropy(hidden_ND, weight, bias, head_targets)
        for cluster, (weight, bias) in enumerate(rest, 1):
            indices = self._cluster_indices(cluster_N, cluster)
            cluster_losses, cluster_total = chunked_cross_entropy(
                hidden_ND[indices], weight, bias, targets_N[indices] - self.cutoffs[cluster - 1]
            )
            losses, total = losses.index_add(0, indices, cluster_losses), total + cluster_total
        return VocabularyLoss(total=total, losses_N=losses, ranks_N=None)

    def _loss_without_grad(self, hidden_ND: Tensor, targets_N: Tensor) -> VocabularyLoss:
        losses, ranks = [hidden_ND.new_zeros(0)], [targets_N.new_zeros(0)]
        for chunk, targets in zip(
            torch.split(hidden_ND, MIN_CHUNK_ROWS), torch.split(targets_N, MIN_CHUNK_ROWS), strict=True
        ):
            log_probs = self(chunk)
            target_log_probs = log_probs.gather(1, targets[:, None])
            losses.append(-target_log_probs[:, 0])
            ranks.append(target_rank(log_probs, target_log_probs))
        all_losses = torch.cat(losses)
        return VocabularyLoss(total=all_losses.sum(), losses_N=all_losses, ranks_N=torch.cat(ranks))

    def _cluster_weights(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of the head and each cluster; split rather than sliced, so their gradient is one tensor."""
        assert self.bias is not None
        weights = list(torch.split(self.weight, self.cluster_sizes))
        biases = list(torch.split(self.bias, self.cluster_sizes))
        weights[0], biases[0] = torch.cat([weights[0], self.bands]), torch.cat([biases[0], self.bands_bias])
        return list(zip(weights, biases, strict=True))

    def _cluster_indices(self, cluster_N: Tensor, cluster: int) -> Tensor:
        """Indices of the predictions whose target is in a cluster; on the meta device an even share of them."""
        if cluster_N.is_meta:
            return torch.arange(len(cluster_N) // len(self.cluster_sizes), device=cluster_N.device)
        return (cluster_N == cluster).nonzero()[:, 0]
