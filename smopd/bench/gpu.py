"""`bench gpu`: what the first user of a GPU runs. Every part of a training step on this machine's device,
ours against other paths, in one process; one JSON file and one table in Markdown. A variant that is absent,
fails or runs out of memory has a row that says so. Without a GPU it runs on the CPU, with small sizes.
"""

import gc
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from smopd.bench.clock import clocked
from smopd.bench.gpu_parts import OURS, SIZES, Bench, Variant
from smopd.bench.measure import machine
from smopd.devices import default_device, free_cache
from smopd.errors import UserError
from smopd.files import write_text
from smopd.tracking import Track, quiet

LIBRARIES = ("torch", "transformers", "peft", "triton", "trl", "liger-kernel", "vllm")
HEADINGS = ("part", "variant", "s", "fastest-slowest", "first call, s", "peak MB", "ours / this")


def report(
    size: str, reps: int, dtype: str = "", only: str = "", track: Track = quiet, out: Path | None = None
) -> dict[str, Any]:
    """Measure everything, or the parts named in `only`; written to `out` as well."""
    device = default_device()
    size = size or ("full" if device.type == "cuda" else "tiny")
    if size not in SIZES:
        raise UserError(f"--size: expected {', '.join(SIZES)}; found {size!r}")
    dtype = dtype or ("bfloat16" if device.type == "cuda" else "float32")
    if dtype not in ("float32", "bfloat16"):
        raise UserError(f"--dtype: expected float32 or bfloat16, found {dtype!r}")
    bench = Bench(SIZES[size], device, getattr(torch, dtype))
    variants = list(bench.variants())
    parts = [*dict.fromkeys(variant.part for variant in variants), "precision"]
    chosen = [name.strip() for name in only.split(",")] if only else parts
    if unknown := [name for name in chosen if name not in parts]:
        raise UserError(f"--only: expected some of {', '.join(parts)}; found {unknown[0]!r}")
    variants = [variant for variant in variants if variant.part in chosen]
    rows = []
    with track("bench gpu", len(variants) + 1) as update:
        for done, variant in enumerate(variants):
            update(done, f"{variant.part}, {variant.name}")
            rows.append(measured(variant, device, reps))
            bench.close()
            free_cache()
        update(len(variants), "precision")
        errors = list(_precision(bench)) if "precision" in chosen else []
        update(len(variants) + 1, "done")
    settings = {"size": size, "dtype": dtype, **vars(SIZES[size])}
    settings["against_trl"] = vars(SIZES[size].against_trl)
    found = {"bench": "gpu", "machine": this_machine(device), "settings": settings, "reps": reps}
    found |= {"results": rows, "precision": errors}
    if out:
        write_text(out, json.dumps(found, indent=1) + "\n")
    return found


def measured(variant: Variant, device: torch.device, reps: int) -> dict[str, Any]:
    """One row. Whatever a variant raises is its row's, not the end of the others."""
    row: dict[str, Any] = {"part": variant.part, "name": variant.name}
    if variant.missing:
        return row | {"skipped": variant.missing}
    try:
        times, facts = clocked(variant.make(), device, reps)
        row |= times | facts
    except Exception as error:  # another library's, on a machine that nobody here has seen
        row["failed"] = _reason(error)
    gc.collect()
    return row


def _precision(bench: Bench) -> Iterator[dict[str, Any]]:
    try:
        yield from bench.precision()
    except Exception as error:
        yield {"name": "precision", "failed": _reason(error)}
    free_cache()


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def this_machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on: device, driver, versions."""
    found: dict[str, Any] = {"device": device.type, "cpu": machine()["cpu"], "cores": os.cpu_count()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name, "gpu_memory_gb": round(properties.total_memory / 1e9, 1),
            "capability": f"{properties.major}.{properties.minor}", "cuda": torch.version.cuda,
            "driver": _driver(),
        }  # fmt: skip
    found |= {"threads": torch.get_num_threads(), "python": platform.python_version()}
    return found | {name: _version(name) for name in LIBRARIES}


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    command = shutil.which("nvidia-smi")
    if not command:
        return None
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    return answer.stdout.split()[0] if answer.returncode == 0 and answer.stdout.split() else None


def markdown(report: dict[str, Any]) -> str:
    """The report as a piece of docs/performance.md."""
    on, settings = report["machine"], report["settings"]
    where = on["cpu"] if on["device"] == "cpu" else f"{on['gpu']}, driver {on['driver']}, CUDA {on['cuda']}"
    versions = ", ".join(f"{name} {on[name]}" for name in LIBRARIES if on[name])
    given = f"--size {settings['size']} --dtype {settings['dtype']} --reps {report['reps']}"
    lines = [f"`smopd bench gpu {given}` on {where} ({versions}):", ""]
    lines += _table(HEADINGS, [_cells(row, report["results"]) for row in report["results"]])
    if report["precision"]:
        kind = f"{settings['dtype']} hidden states and weights"
        lines += ["", f"Errors against float64 from the same {kind}:", ""]
        headings = ("head", "mean divergence", "its error", "error of the gradient")
        lines += _table(headings, [_precision_cells(row) for row in report["precision"]])
    return "\n".join(lines)


def _cells(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    names = [row["part"], row["name"]]
    if "seconds" not in row:
        return [*names, row.get("skipped") or f"FAILED: {row['failed']}", *[""] * (len(HEADINGS) - 3)]
    ours = next(r for r in rows if r["part"] == row["part"] and r["name"] == OURS)
    share = ""
    if row is not ours and "seconds" in ours:
        # Engines sample until their replies end: what is compared is a token's time.
        work = row.get("sampled_tokens", 1) / ours.get("sampled_tokens", 1)
        share = f"{ours['seconds'] / row['seconds'] * work:.2f}"
    low, high = row["spread"]
    times = [f"{row['seconds']:.4g}", f"{low:.4g}-{high:.4g}", f"{row['first_seconds']:.4g}"]
    return [*names, *times, f"{row['peak_mb']:,.0f}", share]


def _precision_cells(row: dict[str, Any]) -> list[str]:
    if "value_error" not in row:
        value = f"{row['divergence']:.2g}" if "divergence" in row else ""
        return [row["name"], value, row.get("skipped") or f"FAILED: {row['failed']}", ""]
    errors = [f"{row[f'{what}_error']:.2g}" for what in ("value", "gradient")]
    return [row["name"], f"{row['divergence']:.2g}", *errors]


def _table(headings: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return lines + [f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in rows]
