"""What the strict device (strict_device.py) knows of torch's operations: which mixtures CUDA
refuses, what is a launch, what makes the host wait, what is a copy from it.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

NAME = "strict"
aten = torch.ops.aten
COPIES = {aten._to_copy, aten.copy_}
INDEXING = {aten.index, aten._unsafe_index, aten.index_put, aten.index_put_, aten._index_put_impl_}
# Elementwise operations without torch's tag for it, and those that read a 0-dim CPU value themselves.
TAKES_SCALARS = {
    aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_, aten.index_fill, aten.index_fill_,
}  # fmt: skip
# The host needs the result, or its size, before it goes on.
WAITS = {
    aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten.repeat_interleave,
    aten._unique2, aten.unique_consecutive, aten.unique_dim, aten.bincount,
}  # fmt: skip
NO_KERNEL = {
    aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided,
    aten._unsafe_view, aten.lift_fresh, aten._local_scalar_dense,
}  # fmt: skip

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class MixedDevices(RuntimeError):
    """An operation that CUDA would refuse."""


@dataclass
class Counts:
    """What the device was asked to do."""

    launches: int = 0
    syncs: int = 0  # times the host had to wait for the device
    uploads: int = 0  # copies from the host
    by_operation: Counter[str] = field(default_factory=Counter)  # launches
    syncs_by_operation: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Begin anew."""
        self.launches = self.syncs = self.uploads = 0
        self.by_operation.clear()
        self.syncs_by_operation.clear()

    def add_launch(self, name: str) -> None:
        """One kernel."""
        self.launches += 1
        self.by_operation[name] += 1

    def add_sync(self, name: str) -> None:
        """One wait of the host."""
        self.syncs += 1
        self.syncs_by_operation[name] += 1

    def add_copy(self, from_device: bool, to_device: bool, name: str) -> None:
        """One copy: within the device a launch, out of it a wait, to it an upload."""
        if not from_device:
            self.uploads += 1
        elif to_device:
            self.add_launch(name)
        else:
            self.add_sync(name)


@dataclass(frozen=True)
class Kind:
    """What an operation's schema says of it."""

    name: str
    packet: Any
    view: bool
    reshapes: bool  # its argument, in place
    takes_scalars: bool
    written: tuple[int | str, ...]  # its arguments that it writes to, by position or name


@functools.cache
def kind_of(func: Any) -> Kind:
    """What is known of an operation, whatever it is given."""
    packet, schema = func.overloadpacket, func._schema
    alias = schema.returns[0].alias_info if schema.returns else None
    written = [
        argument.name if argument.kwarg_only else number
        for number, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    view = alias is not None and not alias.is_write
    takes_scalars = torch.Tag.pointwise in func.tags or packet in TAKES_SCALARS
    reshapes = torch.Tag.inplace_view in func.tags
    return Kind(str(packet), packet, view, reshapes, takes_scalars, tuple(written))


def on_device(value: Any) -> bool:
    """Whether it is a tensor of the strict device."""
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def tensors_in(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """All tensors of an operation's arguments, those in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def check(kind: Kind, args: Args, kwargs: Kwargs, inputs: Sequence[torch.Tensor], stays: bool) -> None:
    """Refuse what CUDA refuses; `stays`: whether the result is on the device."""
    generator = kwargs.get("generator")
    if stays and generator is not None and generator.device.type != NAME:
        raise MixedDevices(f"{kind.name}: a {generator.device.type} generator for numbers on the device")
    if kind.packet in COPIES or len({on_device(tensor) for tensor in inputs}) < 2:
        return
    if kind.packet in INDEXING:  # indices may be anywhere, what is written may be a CPU scalar
        rest = [args[0], *(value for value in args[2:3] if not _is_scalar(value))]
    else:
        written = [args[w] if isinstance(w, int) else kwargs.get(w) for w in kind.written]
        rest = [t for t in inputs if not (kind.takes_scalars and _is_scalar(t))] + list(tensors_in(written))
    if not all(map(on_device, rest)):
        raise MixedDevices(refusal(kind.name, inputs))


def refusal(name: str, inputs: Sequence[torch.Tensor]) -> str:
    """What is said of a mixture."""
    where = [f"{tensor.device.type} {tuple(tensor.shape)}" for tensor in inputs]
    return f"{name}: expected all tensors to be on the same device, found {', '.join(where)}"


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def count(counts: Counts, kind: Kind, args: Args, stays: bool) -> None:
    """Add an operation that was done to the counts."""
    if kind.packet is aten.copy_:
        counts.add_copy(on_device(args[1]), on_device(args[0]), kind.name)
        return
    if kind.packet is aten._to_copy:
        counts.add_copy(on_device(args[0]), stays, kind.name)
        return
    if kind.packet in INDEXING:
        _count_indices(counts, kind, args)
    elif kind.packet in WAITS:
        counts.add_sync(kind.name)
    if not (kind.view or kind.reshapes) and kind.packet not in NO_KERNEL:
        counts.add_launch(kind.name)


def _count_indices(counts: Counts, kind: Kind, args: Args) -> None:
    indices = [index for index in args[1] if index is not None]
    counts.uploads += sum(not on_device(index) for index in indices)
    masks = [index for index in indices if on_device(index) and index.dtype in (torch.bool, torch.uint8)]
    # One value behind one mask is a masked_fill, which needs no index.
    fills = len(args) > 2 and args[2].numel() == 1 and len(indices) == 1
    if masks and not fills:
        counts.add_sync(kind.name)
