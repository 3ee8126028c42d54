"""The child's side of a benchmark: one variant, once. JSON on standard input, JSON on standard output."""

import ctypes
import gc
import json
import re
import resource
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from smopd.bench.measure import Work
from smopd.errors import UserError

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measured(work: Work) -> dict[str, Any]:
    """Warm up, then run once: CPU seconds, and the peak resident set beyond the one before the work."""
    work.warm_up()
    gc.collect()
    # Freed memory goes back to the system: the warm-up's would hide part of the peak.
    getattr(ctypes.CDLL(None), "malloc_trim", lambda padding: None)(0)
    resettable = _reset_peak()
    before = _status("VmRSS") if resettable else _maxrss()
    began, began_system = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
    result = work.run()
    seconds = time.process_time() - began
    # Mostly the kernel handing out pages for large temporaries.
    system = resource.getrusage(resource.RUSAGE_SELF).ru_stime - began_system
    peak = max(0.0, (_status("VmHWM") if resettable else _maxrss()) - before)
    measures = {"seconds": seconds, "system_seconds": system, "peak_mb": peak}
    return measures | {"memory": "VmHWM" if resettable else "ru_maxrss", "facts": work.facts(result)}


def _reset_peak() -> bool:
    """Set the high-water mark down to what is resident now; False where the system cannot."""
    try:
        CLEAR.write_text("5")
        return _status("VmHWM") > 0
    except (OSError, AttributeError):
        return False


def _status(name: str) -> float:
    line = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return int(line.group(1)) / 1024 if line else 0.0


def _maxrss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Read the request, do the work, answer."""
    request = json.load(sys.stdin)
    # Whatever a library prints must not stand in the answer.
    with redirect_stdout(sys.stderr):
        import torch

        torch.set_num_threads(1)
        try:
            prepare = import_module(f"smopd.bench.{request['bench']}").prepare
            answer = measured(prepare(request["variant"], request["settings"]))
        except UserError as error:
            print(f"error: {error}")
            sys.exit(error.exit_code)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
