"""The child's side of a benchmark: one variant, once. JSON on standard input, JSON on standard output."""

import json
import resource
import sys
import time
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from benchmarks.measure import Work
from smopd.doctor.clock import ResidentPeak
from smopd.errors import UserError


def measured(work: Work) -> dict[str, Any]:
    """Warm up, then run once: CPU seconds, and the peak resident set beyond the one before the work."""
    work.warm_up()
    resident = ResidentPeak()
    began, began_system = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
    result = work.run()
    seconds = time.process_time() - began
    # Mostly the kernel handing out pages for large temporaries.
    system = resource.getrusage(resource.RUSAGE_SELF).ru_stime - began_system
    measures = {"seconds": seconds, "system_seconds": system, "peak_mb": resident.read()}
    return measures | {"memory": resident.way, "facts": work.facts(result)}


def main() -> None:
    """Read the request, do the work, answer."""
    request = json.load(sys.stdin)
    # Whatever a library prints must not stand in the answer.
    with redirect_stdout(sys.stderr):
        import torch

        torch.set_num_threads(1)
        try:
            prepare = import_module(f"benchmarks.{request['bench']}").prepare
            answer = measured(prepare(request["variant"], request["settings"]))
        except UserError as error:
            print(f"error: {error}")
            sys.exit(error.exit_code)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
