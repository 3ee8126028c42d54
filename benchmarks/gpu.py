"""`benchmarks gpu`: `smopd doctor --speed` with TRL's trainer beside ours in the training step."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.trl import OurStep, Steps, TrlStep
from smopd.doctor.speed_parts import OURS, SIZES, SpeedBench, Variant, Work

STEPS = {
    "tiny": Steps(conversations=2, reply=4, layers=1, width=18, vocabulary=896, rank=4),
    "small": Steps(),
    "full": Steps(conversations=8, reply=192),
}


class AgainstTrl(SpeedBench):
    """The parts of the doctor, but for the training step."""

    def variants(self) -> Iterator[Variant]:
        """TRL's step where it is installed."""
        absent = "" if find_spec("trl") and find_spec("datasets") else "trl is not installed"
        for variant in super().variants():
            if variant.part != "training step":
                yield variant
            elif variant.name == OURS:
                yield variant._replace(make=partial(self.sdft_step, OurStep))
            else:
                yield variant._replace(make=partial(self.sdft_step, TrlStep), missing=absent)

    def sdft_step(self, kind: type[OurStep] | type[TrlStep]) -> Work:
        """A whole step of SDFT, sampling included, in float32."""
        name = next(name for name, size in SIZES.items() if size == self.size)
        step = kind(STEPS[name])

        def run() -> dict[str, Any]:
            step.sampled, step.sampling_seconds = 0, 0.0
            return {**step.run(), "sampled_tokens": step.sampled}

        return run
