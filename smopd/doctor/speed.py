"""`smopd doctor --speed`: time every part of a training step on this device, our path against others.

A variant that is missing, fails or runs out of memory has a row that says so. Without a GPU, sizes are small.
"""

import gc
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from smopd import machine
from smopd.devices import default_device, free_cache
from smopd.doctor.clock import clocked
from smopd.doctor.speed_parts import OURS, SIZES, SpeedBench, Variant
from smopd.errors import UserError
from smopd.files import write_text
from smopd.models.adapter_files import first_line
from smopd.tables import Row, Table
from smopd.tracking import Track, quiet

LIBRARIES = ("torch", "transformers", "peft", "triton", "trl", "liger-kernel", "vllm")
HEADINGS = ("part", "variant", "s", "fastest-slowest", "first call, s", "peak MB", "ours / this")


def report(
    size: str, reps: int, dtype: str = "", only: str = "", track: Track = quiet, out: Path | None = None,
    kind: type[SpeedBench] = SpeedBench,
) -> dict[str, Any]:  # fmt: skip
    """Measure everything, or the parts named in `only`; also write the results to `out`."""
    device = default_device()
    size = size or ("full" if device.type == "cuda" else "tiny")
    if size not in SIZES:
        raise UserError(f"--size: expected {', '.join(SIZES)}; found {size!r}")
    dtype = dtype or ("bfloat16" if device.type == "cuda" else "float32")
    if dtype not in ("float32", "bfloat16"):
        raise UserError(f"--dtype: expected float32 or bfloat16, found {dtype!r}")
    bench = kind(SIZES[size], device, getattr(torch, dtype))
    variants = list(bench.variants())
    parts = [*dict.fromkeys(variant.part for variant in variants), "precision"]
    chosen = [name.strip() for name in only.split(",")] if only else parts
    if unknown := [name for name in chosen if name not in parts]:
        raise UserError(f"--only: expected some of {', '.join(parts)}; found {unknown[0]!r}")
    variants = [variant for variant in variants if variant.part in chosen]
    rows = []
    with track("speed", len(variants) + 1) as update:
        for done, variant in enumerate(variants):
            update(done, f"{variant.part}, {variant.name}")
            rows.append(measure_variant(variant, device, reps))
            bench.opened.close()
            free_cache()
        update(len(variants), "precision")
        errors: list[dict[str, Any]] = []
        try:
            errors.extend(bench.precision() if "precision" in chosen else ())
        except Exception as error:
            errors.append({"name": "precision", "failed": _reason(error)})
        update(len(variants) + 1, "done")
    settings = {"size": size, "dtype": dtype, **vars(SIZES[size])}
    settings |= vars(settings.pop("shape"))
    measures = {"bench": "gpu", "machine": describe_machine(device), "settings": settings, "reps": reps}
    measures |= {"results": rows, "precision": errors}
    if out:
        write_text(out, json.dumps(measures, indent=1) + "\n")
    return measures


def measure_variant(variant: Variant, device: torch.device, reps: int) -> dict[str, Any]:
    """Measure one row; an exception ends up in the row and does not stop the others."""
    row: dict[str, Any] = {"part": variant.part, "name": variant.name}
    if variant.missing:
        return row | {"skipped": variant.missing}
    try:
        times, facts = clocked(variant.make(), device, reps)
        row |= times | facts
    except Exception as error:  # of any library
        row["failed"] = _reason(error)
    gc.collect()
    return row


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {first_line(error)}"


def describe_machine(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {"device": device.type, "cores": machine.cpu_cores()}
    if device.type == "cuda":
        gpu = machine.cuda_devices()[device.index or 0]
        facts |= {
            "gpu": gpu.name, "gpu_memory_gb": round(gpu.total / 1e9, 1),
            "capability": ".".join(map(str, gpu.capability)), "cuda": torch.version.cuda,
            "driver": machine.nvidia_driver()[0],
        }  # fmt: skip
    return facts | dict.fromkeys(LIBRARIES) | machine.describe_cpu(torch.get_num_threads(), LIBRARIES)


def markdown(report: dict[str, Any], command: str = "smopd doctor --speed") -> str:
    on, settings = report["machine"], report["settings"]
    where = on["cpu"] if on["device"] == "cpu" else f"{on['gpu']}, driver {on['driver']}, CUDA {on['cuda']}"
    versions = ", ".join(f"{name} {on[name]}" for name in LIBRARIES if on[name])
    options = f"--size {settings['size']} --dtype {settings['dtype']} --reps {report['reps']}"
    lines = [f"`{command} {options}` on {where} ({versions}):", ""]
    lines.append(_table(HEADINGS, [_row(row, report["results"]) for row in report["results"]]))
    if report["precision"]:
        kind = f"{settings['dtype']} hidden states and weights"
        lines += ["", f"Errors against float64 from the same {kind}:", ""]
        headings = ("head", "mean divergence", "its error", "error of the gradient")
        lines.append(_table(headings, map(_precision_row, report["precision"])))
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    return Table(heads=heads, rows=[*rows], words=range(len(heads))).markdown()


def _row(row: dict[str, Any], rows: list[dict[str, Any]]) -> Row:
    if "seconds" not in row:
        return Row(row["part"], (row["name"], _why_missing(row), *[""] * (len(HEADINGS) - 3)))
    ours = next(r for r in rows if r["part"] == row["part"] and r["name"] == OURS)
    share = ""
    if row is not ours and "seconds" in ours:
        # Engines may sample different numbers of tokens: compare the time per token.
        work = row.get("sampled_tokens", 1) / ours.get("sampled_tokens", 1)
        share = f"{ours['seconds'] / row['seconds'] * work:.2f}"
    low, high = row["spread"]
    times = [f"{row['seconds']:.4g}", f"{low:.4g}-{high:.4g}", f"{row['first_seconds']:.4g}"]
    return Row(row["part"], (row["name"], *times, f"{row['peak_mb']:,.0f}", share))


def _precision_row(row: dict[str, Any]) -> Row:
    columns = ("divergence", "value_error", "gradient_error")
    cells = [f"{row[column]:.2g}" if column in row else "" for column in columns]
    return Row(row["name"], cells if "value_error" in row else (cells[0], _why_missing(row), ""))


def _why_missing(row: dict[str, Any]) -> str:
    return row.get("skipped") or f"FAILED: {row['failed']}"
