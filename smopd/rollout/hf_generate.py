"""The plain transformers engine: left-padded `generate` from scratch; the reference and fallback of hf.py."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from smopd.models.adapters import evaluating
from smopd.rollout.engine import TRAITS, Engine, Prompts, Sampled, Sampling, Sessions, Stop, Usage
from smopd.rollout.sampler import pick, uniforms


class Drawn(LogitsProcessor):
    """Picks each row's next token and leaves only that one: greedy search then is an exact sampler."""

    def __init__(self, sampling: Sampling, uniforms_BM: torch.Tensor, prompt_length: int) -> None:
        self.sampling, self.uniforms_BM, self.prompt_length = sampling, uniforms_BM, prompt_length
        self.logps: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        position = input_ids.shape[1] - self.prompt_length
        chosen_B, logp_B = pick(scores, self.sampling, self.uniforms_BM[:, position])
        self.logps.append(logp_B)
        return torch.full_like(scores, float("-inf")).scatter_(-1, chosen_B[:, None], 0.0)  # type: ignore[return-value]


class StockEngine(Engine):
    """Samples with a transformers model (PEFT-wrapped or not) in batches of at most `batch` prompts."""

    traits = TRAITS["hf"]

    def __init__(self, model: torch.nn.Module, end_ids: Sequence[int], batch: int = 64) -> None:
        self.model: PreTrainedModel = model  # type: ignore[assignment]
        self.end_ids, self.batch, self.usage = list(end_ids), batch, Usage()

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
    ) -> list[Sampled]:
        # Prompts of like length share a batch: less padding. Replies do not depend on the grouping.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        replies: dict[int, Sampled] = {}
        with evaluating(self.model):
            for first in range(0, len(order), self.batch):
                chosen = order[first : first + self.batch]
                drawn = self._generate([prompts[i] for i in chosen], [seeds[i] for i in chosen], sampling)
                replies.update(zip(chosen, drawn, strict=True))
        return [replies[i] for i in range(len(prompts))]

    def _generate(self, prompts: list[Sequence[int]], seeds: list[int], sampling: Sampling) -> list[Sampled]:
        device, limit = next(self.model.parameters()).device, sampling.max_tokens
        longest = max(map(len, prompts))
        pad = self.end_ids[0]  # any id will do: padding is hidden by the attention mask, not by its id
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        drawn = Drawn(sampling, torch.stack([uniforms(seed, limit) for seed in seeds]).to(device), longest)
        ends = {"eos_token_id": self.end_ids, "pad_token_id": pad}
        config = GenerationConfig(max_new_tokens=limit, do_sample=False, num_beams=1, **ends)
        how: Any = {"generation_config": config, "logits_processor": LogitsProcessorList([drawn])}
        output: Any = self.model.generate(input_ids=ids, attention_mask=mask, **how)  # type: ignore[operator]
        logps = torch.stack(drawn.logps, dim=1).tolist()
        tokens = sum(map(len, prompts))
        self.usage.add(tokens, 0, ids.numel() - tokens)
        return [self._cut(*row) for row in zip(output[:, longest:].tolist(), logps, strict=True)]

    def _cut(self, tokens: list[int], logps: list[float]) -> Sampled:
        """The row up to its first end token; what stands behind it is padding."""
        end = next((place + 1 for place, token in enumerate(tokens) if token in self.end_ids), None)
        return Sampled(tuple(tokens[:end]), Stop.END if end else Stop.LENGTH, tuple(logps[:end]))
