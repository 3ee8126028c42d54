"""Time and peak memory of work on a device: CUDA's events and allocator, or the clock and resident set."""

import ctypes
import gc
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from smopd.devices import free_cache

MB = 2**20


class ResidentPeak:
    """The process's peak resident set above that at creation of this object, in MB."""

    def __init__(self) -> None:
        gc.collect()
        # Return freed memory to the system: what an earlier peak left would hide part of this one.
        getattr(ctypes.CDLL(None), "malloc_trim", lambda padding: None)(0)
        self.way = "VmHWM"
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
            self._before = _read_resident("VmRSS")
        except (OSError, AttributeError):  # not supported
            self.way = "ru_maxrss"
            self._before = _read_resident(self.way)

    def read(self) -> float:
        return max(0.0, _read_resident(self.way) - self._before)


def _read_resident(way: str) -> float:
    if way == "ru_maxrss":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (MB if sys.platform == "darwin" else 1024)
    line: Any = re.search(rf"^{way}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(line.group(1)) / 1024


def clocked(work: Callable[[], Any], device: torch.device, reps: int) -> tuple[dict[str, Any], Any]:
    """Seconds of a first call and of `reps` more, their median extra peak memory, and the last result."""
    measures = []
    for _ in range(reps + 1):
        result = None  # freed before the next call
        gc.collect()
        *measured, result = _time(work, device)
        measures.append(measured)
    (first, *later), (_, *peaks) = zip(*measures, strict=True)
    times = {"first_seconds": first, "seconds": median(later), "spread": [min(later), max(later)]}
    return {**times, "peak_mb": median(peaks)}, result


def _time(work: Callable[[], Any], device: torch.device) -> tuple[float, float, Any]:
    if device.type != "cuda":
        resident, began = ResidentPeak(), time.perf_counter()
        result = work()
        return time.perf_counter() - began, resident.read(), result
    free_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    result = work()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1000, (torch.cuda.max_memory_allocated(device) - before) / MB, result
