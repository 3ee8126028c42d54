"""`smopd doctor`: what this machine is, and whether it computes right. Heavy imports wait for the call."""

import typer

from smopd.cli.options import Json
from smopd.printing import emit, say


def doctor(as_json: Json = False) -> None:
    """Devices, versions, memory, the engine and kernels a run would use; a self-test; what to change.

    The self-test compares a scoring step and a greedy reply of the embedded model on this machine's device
    with the CPU. Exit code 1 when it fails.

    Example: smopd doctor --json
    """
    from smopd.devices import default_device
    from smopd.doctor.facts import collect
    from smopd.doctor.report import text, to_json
    from smopd.doctor.selftest import self_test
    from smopd.progress import track

    with track("looking around"):
        facts = collect()
    checks = self_test(default_device(), track)
    emit(to_json(facts, checks)) if as_json else say(text(facts, checks))
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)
