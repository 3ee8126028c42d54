"""Sampling one token for every row of a batch with shapes that never change, and everything that moves on
(the column, the tokens, the draws) in tensors. So a token is the same list of launches every time: on CUDA it
is captured in a graph and replayed, and the host looks at the tokens only every few of them.

Shapes: B rows (some of them only there to fill up), C columns, K tokens between two looks, V vocabulary.
"""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from smopd.rollout.engine import Sampling
from smopd.rollout.kv import Arena, RowCache
from smopd.rollout.sampler import pick

log = logging.getLogger("smopd")

LOOK = 8  # tokens sampled between two looks: a row that ended computes at most so many for nothing

# Logits [B, V] of tokens [B, 1] that stand at the cache's column, from what they see [B, 1, 1, C] and their
# places in their rows [B, 1].
Forward = Callable[[Tensor, Tensor, Tensor, RowCache], Tensor]
Capture = Callable[["StaticStep"], Callable[[], None]]


class StaticStep:
    """Samples a token for every row whenever `run` is called, and moves on to the next column."""

    def __init__(
        self, forward: Forward, arena: Arena, shape: tuple[int, int], sampling: Sampling, device: torch.device
    ) -> None:
        rows, columns = shape
        self.forward, self.sampling = forward, sampling
        self.column = torch.zeros(1, dtype=torch.long, device=device)  # of the tokens that go in next
        self.cache = arena.cache(rows, columns, self.column)
        self.columns_C = torch.arange(columns, device=device)
        self.starts_B1 = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.tokens_B1 = torch.zeros_like(self.starts_B1)
        self.look = torch.zeros(1, dtype=torch.long, device=device)  # tokens since the host looked
        self.draws_BK = torch.zeros(rows, LOOK, dtype=torch.float64, device=device)
        self.chosen_BK = torch.zeros(rows, LOOK, dtype=torch.long, device=device)
        self.logps_BK = torch.zeros_like(self.draws_BK)
        self.run: Callable[[], None] = self.advance

    def advance(self) -> None:
        """One token a row. Nothing in here may depend on a number that the host knows."""
        seen_BC = (self.columns_C >= self.starts_B1) & (self.columns_C <= self.column)
        places_B1 = self.column - self.starts_B1
        logits_BV = self.forward(self.tokens_B1, seen_BC[:, None, None], places_B1, self.cache)
        draws_B = self.draws_BK.index_select(1, self.look)[:, 0]
        chosen_B, logp_B = pick(logits_BV, self.sampling, draws_B)
        self.chosen_BK.index_copy_(1, self.look, chosen_B[:, None])
        self.logps_BK.index_copy_(1, self.look, logp_B.double()[:, None])
        self.tokens_B1.copy_(chosen_B[:, None])
        self.column.add_(1)
        self.look.add_(1)

    def rehearse(self) -> None:
        """Run once and forget it: what this writes to the cache is overwritten before it counts."""
        state = (self.column, self.look, self.tokens_B1)
        before = [tensor.clone() for tensor in state]
        self.advance()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)

    def begin(self, tokens_B: Tensor, starts_B: Tensor, column: int) -> None:
        """Go on from `column` with these rows; those behind them only fill up."""
        self.tokens_B1.zero_()
        self.starts_B1.zero_()
        self.tokens_B1[: len(tokens_B), 0] = tokens_B
        self.starts_B1[: len(starts_B), 0] = starts_B
        self.column.fill_(column)

    def sample(self, draws_BK: Tensor) -> tuple[Tensor, Tensor]:
        """As many tokens as there are draws, and their log-probabilities, on the CPU: [B, K] for B given."""
        rows, count = draws_BK.shape
        self.draws_BK[:rows, :count] = draws_BK
        self.look.zero_()
        for _ in range(count):
            self.run()
        return self.chosen_BK[:rows, :count].cpu(), self.logps_BK[:rows, :count].cpu()


class CudaGraphs:
    """Captures steps in CUDA graphs that share one pool of memory: they are replayed one after the other."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: StaticStep) -> Callable[[], None]:
        device, graph = step.column.device, torch.cuda.CUDAGraph()
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                # Libraries set themselves up at their first calls, which no graph can hold.
                for _ in range(2):
                    step.rehearse()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, self._pool, side, capture_error_mode="thread_local"):
                step.advance()

        def replay() -> None:
            with torch.cuda.device(device):
                graph.replay()

        return replay


class StaticSteps:
    """The steps of an engine, one for each shape and way of sampling, with the memory they share."""

    def __init__(self, forward: Forward, graphs: Callable[[], Capture] | None = None) -> None:
        self.forward, self._graphs = forward, graphs
        self._capture: Capture | None = None
        self.arena = Arena()
        self._steps: dict[tuple[int, int, float, float, int], StaticStep] = {}
        self._weights: tuple[int, ...] = ()

    def reserve(self, rows: int, columns: int, model: torch.nn.Module) -> None:
        """Make room for a batch. A graph reads weights where they were when it was captured: where one of
        them has moved (a merged adapter), or the cache has, all steps are made anew.
        """
        weights = tuple(parameter.data_ptr() for parameter in model.parameters())
        if weights != self._weights:
            self.clear()
            self._weights = weights
        if self.arena.reserve(rows * columns):
            self._steps.clear()

    def begin(
        self, shape: tuple[int, int], sampling: Sampling, tokens_B: Tensor, starts_B: Tensor, column: int
    ) -> StaticStep:
        """The step for (rows, columns), set to go on from `column` of what stands in the arena."""
        key = (*shape, sampling.temperature, sampling.top_p, sampling.top_k)
        new = key not in self._steps
        if new:
            self._steps[key] = StaticStep(self.forward, self.arena, shape, sampling, tokens_B.device)
        step = self._steps[key]
        step.begin(tokens_B, starts_B, column)
        if new and self._graphs:
            try:
                self._capture = self._capture or self._graphs()
                step.run = self._capture(step)
            # torch says with an AssertionError that it was built without CUDA, with a RuntimeError the rest.
            except (RuntimeError, AssertionError) as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                log.warning("hf: no CUDA graph of the decode step, which is slower (%s)", reason)
                self._graphs = None
                step.begin(tokens_B, starts_B, column)
        return step

    def clear(self) -> None:
        self._steps.clear()
        self.arena, self._capture = Arena(), None
