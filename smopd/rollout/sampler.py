"""One token from a row of logits, drawn with a given uniform number. B rows, V vocabulary, K candidates."""

import torch
from torch import Tensor

from smopd.rollout.engine import Sampling
from smopd.seeds import torch_generator


def uniforms(seed: int, count: int) -> Tensor:
    """The numbers that decide one reply, one a token."""
    return torch.rand(count, generator=torch_generator(seed), dtype=torch.float64)


def pick(logits_BV: Tensor, sampling: Sampling, uniforms_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Chosen ids [B], their log-probabilities [B] at temperature 1, untruncated. No numbers: greedy."""
    logits_BV = logits_BV if logits_BV.dtype == torch.float64 else logits_BV.float()
    if uniforms_B is None or sampling.temperature == 0:
        chosen_B1 = logits_BV.argmax(-1, keepdim=True)
    else:
        ids_BK, weights_BK = _candidates(logits_BV, sampling)
        # float64: over 150,000 entries a float32 sum is off by more than the smallest probabilities
        cumulative_BK = weights_BK.cumsum(-1)
        threshold_B1 = uniforms_B[:, None] * cumulative_BK[:, -1:]
        # right=True skips candidates of probability zero even when the number is exactly 0
        place_B1 = torch.searchsorted(cumulative_BK, threshold_B1, right=True).clamp_max(ids_BK.shape[-1] - 1)
        chosen_B1 = ids_BK.gather(-1, place_B1)
    logp_B1 = logits_BV.gather(-1, chosen_B1) - logits_BV.logsumexp(-1, keepdim=True)
    return chosen_B1[:, 0], logp_B1[:, 0]


def _candidates(logits_BV: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Ids and probabilities (float64, not normalised) of what may be drawn, in vocabulary order."""
    scaled_BV = logits_BV / sampling.temperature
    size = scaled_BV.shape[-1]
    count = min(sampling.top_k, size) if sampling.top_k else size
    if count == size and sampling.top_p >= 1:
        all_BV = torch.arange(size, device=scaled_BV.device).expand_as(scaled_BV)
        return all_BV, scaled_BV.double().softmax(-1)
    scores_BK, ids_BK = scaled_BV.topk(count, dim=-1)  # the likeliest first
    weights_BK = scores_BK.double().softmax(-1)
    if sampling.top_p < 1:
        before_BK = weights_BK.cumsum(-1) - weights_BK
        weights_BK = weights_BK.masked_fill(before_BK >= sampling.top_p, 0.0)  # the likeliest always stays
    ids_BK, order_BK = ids_BK.sort(dim=-1)
    return ids_BK, weights_BK.gather(-1, order_BK)
