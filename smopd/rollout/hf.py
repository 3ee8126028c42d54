"""The transformers engine: batched `generate`, left-padded, with draws that do not depend on the batch.

Each reply has its own stream of uniform numbers, one a token. The last logits processor turns the processed scores into a
cumulative distribution, finds where the number falls, and leaves only that token: greedy search then is an exact sampler.
It leaves out the weights' origin: whichever adapter is active samples.
"""

from collections.abc import Sequence

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from smopd.rollout.engine import Reply, Sampling, Stop
from smopd.seeds import torch_generator


class InverseTransform(LogitsProcessor):
    """Picks the token at which the cumulative distribution passes this row's next uniform number."""

    def __init__(self, uniforms_BM: torch.Tensor, prompt_length: int) -> None:
        self.uniforms_BM = uniforms_BM
        self.prompt_length = prompt_length

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        # float64: over 150,000 entries a float32 sum is off by more than the smallest probabilities
        cumulative_BV = scores.double().softmax(-1).cumsum(-1)
        position = input_ids.shape[1] - self.prompt_length
        threshold_B1 = self.uniforms_BM[:, position : position + 1] * cumulative_BV[:, -1:]
        # right=True skips tokens of probability zero even when the number is exactly 0
        chosen_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True).clamp_max(scores.shape[-1] - 1)
        picked = torch.full_like(scores, float("-inf"))
        return picked.scatter_(-1, chosen_B1, 0.0)  # type: ignore[return-value]


class HFEngine:
    """Samples with a transformers model (PEFT-wrapped or not) in batches of at most `batch` prompts."""

    def __init__(self, model: torch.nn.Module, end_ids: Sequence[int], batch: int = 64) -> None:
        self.model: PreTrainedModel = model  # type: ignore[assignment]
        self.end_ids = list(end_ids)
        self.batch = batch

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: Sampling) -> list[Reply]:
        """One reply to each prompt, in order."""
        # Prompts of like length share a batch: less padding. Replies do not depend on the grouping.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        replies: dict[int, Reply] = {}
        was_training = self.model.training
        self.model.eval()
        try:
            for first in range(0, len(order), self.batch):
                chosen = order[first : first + self.batch]
                drawn = self._generate([prompts[i] for i in chosen], [seeds[i] for i in chosen], sampling)
                replies.update(zip(chosen, drawn, strict=True))
        finally:
            self.model.train(was_training)
        return [replies[i] for i in range(len(prompts))]

    def _generate(self, prompts: list[Sequence[int]], seeds: list[int], sampling: Sampling) -> list[Reply]:
        device = next(self.model.parameters()).device
        longest = max(map(len, prompts))
        pad = self.end_ids[0]  # any id will do: padding is hidden by the attention mask, never found by its id
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        processors = LogitsProcessorList()
        if sampling.temperature > 0:
            if sampling.temperature != 1:
                processors.append(TemperatureLogitsWarper(sampling.temperature))
            if sampling.top_k:
                processors.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                processors.append(TopPLogitsWarper(sampling.top_p))
            draws = [torch.rand(sampling.max_tokens, generator=torch_generator(seed), dtype=torch.float64) for seed in seeds]
            processors.append(InverseTransform(torch.stack(draws).to(device), longest))
        config = GenerationConfig(
            max_new_tokens=sampling.max_tokens, do_sample=False, num_beams=1, eos_token_id=self.end_ids, pad_token_id=pad
        )
        output = self.model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=mask, generation_config=config, logits_processor=processors
        )
        assert isinstance(output, torch.Tensor)
        return [self._cut(row[longest:], sampling.max_tokens) for row in output.tolist()]

    def _cut(self, tokens: list[int], limit: int) -> Reply:
        """The row up to its first end token; what stands behind it is padding."""
        for place, token in enumerate(tokens):
            if token in self.end_ids:
                return Reply(tuple(tokens[: place + 1]), Stop.END)
        return Reply(tuple(tokens[:limit]), Stop.LENGTH)
