"""GPUs as data, as their makers publish them: dense rates, without sparsity; memory in decimal gigabytes."""

from dataclasses import dataclass

from smopd.config import Config
from smopd.config_io import choices
from smopd.errors import UserError
from smopd.rollout.choice import with_chosen_engine


@dataclass(frozen=True)
class Gpu:
    """One device. `float32` is the rate without TF32: the adapters are float32, and torch leaves TF32 off."""

    name: str
    memory: float  # GB
    bfloat16: float  # TFLOP/s, dense
    float32: float  # TFLOP/s
    bandwidth: float  # GB/s of its own memory
    link: float  # GB/s to its neighbours, one direction: NVLink, or PCIe

    @property
    def is_gpu(self) -> bool:
        """The table has a CPU too."""
        return self.name != "cpu"

    def rate(self, dtype: str) -> float:
        """Operations a second, at best."""
        return (self.float32 if dtype == "float32" else self.bfloat16) * 1e12


_PUBLISHED = (
    Gpu("rtx-pro-6000", 96, 504, 126, 1792, 64),  # Blackwell workstation edition: what the paper used
    Gpu("h100", 80, 989, 67, 3350, 450),
    Gpu("h100-96", 96, 989, 67, 3350, 450),
    Gpu("h200", 141, 989, 67, 4800, 450),
    Gpu("a100-80", 80, 312, 19.5, 2039, 300),
    Gpu("a100-40", 40, 312, 19.5, 1555, 300),
    Gpu("l40s", 48, 362, 91.6, 864, 32),
    Gpu("rtx4090", 24, 165, 82.6, 1008, 32),
    Gpu("rtx3090", 24, 71, 35.6, 936, 32),
    Gpu("a10g", 24, 70, 35, 600, 32),
    Gpu("cpu", 16, 0.1, 0.1, 20, 10),  # two ordinary cores: an order of magnitude, no more
)
GPUS = {gpu.name: gpu for gpu in _PUBLISHED}


def engine_on(config: Config, gpu: Gpu, gpus: int = 1) -> Config:
    """The config with the engine that `auto` would choose there, vLLM assumed to be installed."""
    return with_chosen_engine(config, gpu.is_gpu, True, gpus)


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; an error with the nearest names."""
    if name.lower() in GPUS:
        return GPUS[name.lower()]
    raise UserError(f"--gpu {name}: not in the table{choices(name.lower(), list(GPUS), 'GPUs')}")
