"""A CUDA graph made of Python: the torch operations of a step are recorded once and then repeated on the same
tensors, without a line of the step's Python. What a real capture refuses is refused here as well: reading a
tensor's value on the host, shapes that depend on values, tensors made from Python numbers.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
REFUSED = {
    aten._local_scalar_dense.default, aten.nonzero.default, aten.lift_fresh.default, aten.item.default,
    aten.is_nonzero.default, aten.masked_select.default, aten.equal.default,
}  # fmt: skip


class Refused(RuntimeError):
    """What a CUDA graph cannot hold."""


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in REFUSED:
            raise Refused(f"operation not permitted when stream is capturing: {func}")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))  # keeps every tensor alive, so ids stay theirs
        return result


class RecordedGraphs:
    """Stands where `CudaGraphs` does. Counts what it captured and replayed."""

    def __init__(self) -> None:
        self.captured: list[tuple[int, int]] = []
        self.replayed = 0

    def __call__(self, step) -> Any:
        step.rehearse()
        # A capture computes nothing: whatever the recording changes is put back.
        state = [step.column, step.look, step.tokens_B1, step.chosen_BK, step.logps_BK]
        before = [tensor.clone() for tensor in state]
        with _Recorder() as recorder:
            step.advance()
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        self.captured.append((len(step.tokens_B1), len(step.columns_C)))

        def replay() -> None:
            self.replayed += 1
            now: dict[int, torch.Tensor] = {}

            def present(value: Any) -> Any:
                return now.get(id(value), value) if isinstance(value, torch.Tensor) else value

            for func, args, kwargs, result in recorder.calls:
                again = func(*tree_map(present, args), **tree_map(present, kwargs))
                for old, new in zip(tree_flatten(result)[0], tree_flatten(again)[0], strict=True):
                    if isinstance(old, torch.Tensor):
                        now[id(old)] = new

        return replay
