"""A device that is not the CPU, on any machine: "strict:0", made of Python on torch's privateuse1 backend.

    with strict_device() as counts:
        x = torch.ones(3, device=DEVICE)

A tensor of it wraps a CPU tensor that nothing else sees. Every operation is checked, counted, computed on the
CPU and wrapped again. What CUDA refuses is refused (`MixedDevices`): tensors of two devices in one operation,
a CPU generator for numbers on the device. What CUDA allows is allowed: CPU scalars (0-dim) in elementwise
work, CPU indices of a device tensor (an upload), copies. Results have the bits of the CPU.

It tells where code would break or wait on a GPU, not how long a GPU would take. A launch is an operation that
writes: a view or empty memory is none; what CUDA fuses or splits below torch's operations is not seen.

torch registers such a device once a process. Outside `strict_device()` it says that it is not available, and
nothing else of torch changes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from support.strict_operations import (
    NAME,
    Args,
    Counts,
    Kwargs,
    MixedDevices,
    aten,
    check,
    count,
    kind_of,
    on_device,
    refusal,
    tensors_in,
)  # fmt: skip
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import set_checkpoint_early_stop

__all__ = ["DEVICE", "Counts", "MixedDevices", "strict_device"]


class _State:
    """The counts of the block that is running; outside, none."""

    counts: Counts | None = None


_state = _State()


class _Module(backend_registration._DummyBackendModule):
    """torch.strict."""

    def is_available(self) -> bool:
        return _state.counts is not None

    def device_count(self) -> int:
        return int(self.is_available())

    def get_amp_supported_dtype(self) -> list[torch.dtype]:  # recomputation asks for it
        return [torch.bfloat16, torch.float16]


class _Hooks(backend_registration._DummyPrivateUse1Hook):
    def is_available(self) -> bool:
        return _state.counts is not None


backend_registration._setup_privateuseone_for_python_backend(NAME, _Module(), _Hooks())
DEVICE = torch.device(NAME, 0)


class _DeviceTensor(torch.Tensor):
    """A CPU tensor, `twin`, that says it is elsewhere."""

    twin: torch.Tensor

    @staticmethod
    def __new__(cls, twin: torch.Tensor) -> "_DeviceTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, twin.size(), strides=twin.stride(), storage_offset=twin.storage_offset(), dtype=twin.dtype,
            device=DEVICE,
        )  # fmt: skip
        tensor.twin = twin
        return tensor

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))

    @property
    def data(self) -> torch.Tensor:
        return self.detach()

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, _DeviceTensor):
            raise MixedDevices("the data of a device tensor cannot be a CPU tensor")
        torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.twin = other.twin


def _twin(value: Any) -> Any:
    """The CPU tensor behind a device tensor, also inside a list; anything else as it is."""
    if isinstance(value, _DeviceTensor):
        return value.twin
    if isinstance(value, list | tuple):
        return type(value)(_twin(item) for item in value)
    return value


# Functions of torch that look at the kind of device, or at memory, before they come to an operation.


def _tolist(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().tolist()


def _numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
    if not force:
        raise TypeError("can't convert a strict:0 tensor to numpy: use Tensor.cpu() first")
    return tensor.detach().cpu().numpy()


def _representation(tensor: torch.Tensor, **kwargs: Any) -> str:
    return f"strict {_twin(tensor)!r}"


def _of_twin(function: Callable[..., Any]) -> Callable[..., Any]:
    """The twin's memory, by which tensors are told apart."""
    return lambda tensor, *args, **kwargs: function(_twin(tensor), *args, **kwargs)


_torch_attention = F.scaled_dot_product_attention


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The kernel that the CPU would choose, on the device as one operation each way."""
    inputs = [tensor for tensor in (query, key, value, attn_mask) if tensor is not None]
    if not any(isinstance(tensor, _DeviceTensor) for tensor in inputs):
        return _torch_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if not all(isinstance(tensor, _DeviceTensor) for tensor in inputs):
        raise MixedDevices(refusal("scaled_dot_product_attention", inputs))
    choice = torch._fused_sdp_choice(
        _twin(query), _twin(key), _twin(value), _twin(attn_mask), dropout_p, is_causal, scale=scale,
        enable_gqa=enable_gqa,
    )  # fmt: skip
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = hidden.masked_fill_(attn_mask.logical_not(), float("-inf"))
    outputs: tuple[torch.Tensor, torch.Tensor]
    if choice == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value:
        outputs = aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )
    else:
        outputs = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return outputs[0]


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.tolist: _tolist,
    torch.Tensor.numpy: _numpy,
    torch.Tensor.__repr__: _representation,
    **{f: _of_twin(f) for f in (torch.Tensor.untyped_storage, torch.Tensor.storage, torch.Tensor.data_ptr)},
}


def _run(func: Any, args: Args, kwargs: Kwargs) -> Any:
    """One operation, wherever its tensors are."""
    inputs = list(tensors_in((*args, *kwargs.values())))
    ours = [tensor for tensor in inputs if isinstance(tensor, _DeviceTensor)]
    wanted = kwargs.get("device")
    comes_here = wanted is not None and torch.device(wanted).type == NAME
    if not ours and not comes_here:
        return func(*args, **kwargs)
    kind = kind_of(func)
    stays = comes_here or wanted is None
    check(kind, args, kwargs, inputs, stays)
    plain_kwargs = {name: _twin(value) for name, value in kwargs.items()}
    if comes_here:
        plain_kwargs["device"] = torch.device("cpu")
    result = func(*map(_twin, args), **plain_kwargs)
    if _state.counts is not None:
        count(_state.counts, kind, args, stays)
    if kind.packet is aten.copy_:
        return args[0]
    if kind.reshapes:  # in place: the same to what the wrapper says of itself
        with no_dispatch():
            func(*args, **kwargs)
        return args[0]
    return _wrapped(result, ours) if stays else result


def _wrapped(result: Any, ours: Sequence[_DeviceTensor]) -> Any:
    """The result as device tensors; an argument that was written to is returned as itself."""
    if isinstance(result, list | tuple):
        return type(result)(_wrapped(part, ours) for part in result)
    if not isinstance(result, torch.Tensor):
        return result
    for tensor in ours:
        if tensor.twin is result:
            return tensor
    return _DeviceTensor(result)


# Memory that torch makes inside a function, as for the list in x[[1, 2]]: no mode sees that.
_library = torch.library.Library("aten", "IMPL")


def _empty(size: Sequence[int], *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> torch.Tensor:
    return _DeviceTensor(torch.empty(size, dtype=dtype))


def _empty_strided(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype | None = None, **kwargs: Any
) -> torch.Tensor:
    return _DeviceTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: torch.Tensor, to: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if _state.counts is not None:
        _state.counts.add_copy(on_device(source), on_device(to), "aten._copy_from")
    _twin(to).copy_(_twin(source))
    return to


_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")


class _Mode(TorchDispatchMode):
    """Also sees operations without a device tensor among their arguments: torch.zeros(3, device=DEVICE)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # to be told so, torch would import all of its compiler
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def strict_device() -> Iterator[Counts]:
    """Inside, `DEVICE` can be used; what it does is counted."""
    if _state.counts is not None:
        raise RuntimeError("strict_device() is on already")
    _state.counts = Counts()
    # By its name and not in `__torch_function__`, which torch does not ask while it recomputes in backward.
    F.scaled_dot_product_attention = _attention
    try:
        # torch ends the process when Python fails in one of its own threads, or when recomputation stops
        # early by an exception: backward stays in this thread and recomputes to the end.
        with _Mode(), torch.autograd.set_multithreading_enabled(False), set_checkpoint_early_stop(False):
            yield _state.counts
    finally:
        _state.counts = None
        F.scaled_dot_product_attention = _torch_attention
