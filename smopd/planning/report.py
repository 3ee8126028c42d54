"""Plans as text, as JSON, and several as a table."""

from collections.abc import Sequence
from typing import Any

from smopd.config_io import scalar
from smopd.planning.memory import server_bytes
from smopd.planning.plan import BANDWIDTH, HANDOVER, ResourcePlan, samples_merged, server_group
from smopd.rollout.engine import traits_of
from smopd.tables import Row, Table

GB = 1e9
HEADS = ("model", "GPUs", "engine", "GB needed", "fits", "largest part", "s a step", "sampling", "minutes",
         "at the limits")  # fmt: skip


def to_json(recipe: str, plan: ResourcePlan, source: str) -> dict[str, Any]:
    load, needs, lengths = plan.load, plan.memory, plan.lengths
    return {
        "recipe": recipe, "model": plan.config.model.path,
        "shape": {**vars(plan.shape), "parameters": plan.shape.parameters, "source": source},
        "gpu": vars(plan.gpu), "gpus": plan.gpus, "sharded": plan.sharded,
        "memory": {
            **vars(needs), "peak": needs.peak, "largest": needs.largest, "fits": plan.fits,
            "replicated_peak": plan.replicated, "changes": dict(plan.changes),
            "changed_peak": plan.changed_peak,
        },
        "tokens": {
            "rollouts": load.rollouts, "sampled": load.sampled.tokens, "prefilled": load.sampled.prefilled,
            "student_packed": load.student.tokens, "teacher_packed": load.teacher.tokens,
            "scored": load.scored, "decode_steps": load.sampled.steps,
        },
        "seconds": plan.seconds,
        "minutes": {"run": plan.minutes, "run_at_limits": plan.minutes_at_limits},
        "assumptions": {
            "mfu": plan.mfu, "middle_reply": lengths.middle, "answer_reply": lengths.answer,
            "data": lengths.source, "bandwidth_share": BANDWIDTH, "handover_bytes_a_second": HANDOVER,
        },
    }  # fmt: skip


def text(recipe: str, plan: ResourcePlan) -> str:
    config, load, lengths, needs = plan.config, plan.load, plan.lengths, plan.memory
    count = plan.shape.parameters / 1e6
    size = f"{count / 1000:.2f} billion" if count >= 1000 else f"{count:.1f} million"
    split = ", base weights sharded (FSDP2)" if plan.sharded else ", base weights on every GPU"
    gpus = f"{plan.gpus} x {plan.gpu.name} ({plan.gpu.memory:g} GB){split if plan.gpus > 1 else ''}"
    scored = (
        f"{load.student.tokens:,.0f} packed tokens of the student, {load.teacher.tokens:,.0f} of the teacher"
    )
    work = {"sampling": f"{load.sampled.tokens:,.0f} tokens", "scoring": scored}
    peaks = {"peak while scoring": needs.scoring, "peak while sampling": needs.rollout}
    lines = [
        f"{recipe}: {_model(plan)}, {size} weights, {config.model.dtype}; {gpus}; engine {_engine(plan)}",
        "",
        f"{'memory on each GPU':<34}{'GB':>8}",
        *(f"{name:<34}{size / GB:>8.1f}" for name, size in (needs.parts | peaks).items()),
        *_verdict(plan),
        *_sampling_advice(plan),
        f"planned for the largest micro-batch: {max(lengths.turns)} turns, every reply at its limit",
        "",
        f"{f'a step, rollouts a process: {load.rollouts}':<34}{'seconds':>8}",
        *(f"{name:<34}{took:>8.1f}  {work.get(name, '')}".rstrip() for name, took in plan.seconds.items()),
        "",
        *_describe_age(plan),
        f"{config.train.steps} steps: {plan.minutes:,.0f} minutes; "
        f"{plan.minutes_at_limits:,.0f} if every reply reaches its limit",
        f"assumed: replies of {lengths.middle:.0f} and {lengths.answer:.0f} tokens (--middle, --answer), "
        f"{plan.mfu:.0%} of the published rate (--mfu)",
        f"lengths of the conversations: {lengths.source}",
        "counted: tokens, bytes; estimated: every second (docs/performance.md)",
    ]
    return "\n".join(lines)


def _verdict(plan: ResourcePlan) -> list[str]:
    room, needs = plan.gpu.memory, plan.memory
    replicated, changed = plan.replicated / GB, plan.changed_peak / GB
    whole = f"whole weights on every GPU would need {replicated:.1f} GB: planned with train.shard=true"
    lines = [whole] if plan.sharded and replicated > room else []
    peak = f"{needs.peak / GB:.1f} of {room:g} GB"
    largest = f"largest part: {needs.largest}, {needs.parts[needs.largest] / GB:.1f} GB"
    lines.append(f"{'fits' if plan.fits else 'does NOT fit'}: {peak}; {largest}")
    changes = ((key, value if isinstance(value, str) else scalar(value)) for key, value in plan.changes)
    if options := " ".join(f"--set {key}={value}" for key, value in changes):
        promise = "to make it fit" if changed <= room else "what helps, and is not enough"
        lines.append(f"{promise} ({changed:.1f} GB): {options}")
    if changed > room:
        lines.append("more GPUs (--gpus, with train.shard=true) or larger ones are needed")
    return lines


def _describe_age(plan: ResourcePlan) -> list[str]:
    ahead, overlap = plan.config.rollout.ahead, plan.config.rollout.overlap
    if ahead == 1 and not overlap:
        return []
    oldest = 2 * ahead - 1 if overlap else ahead - 1
    beside = ", beside the training of the block before" if overlap else ""
    return [f"sampled {ahead} steps at a time{beside}: conversations are up to {oldest} updates old"]


def _sampling_advice(plan: ResourcePlan) -> list[str]:
    engine, traits = plan.config.engine, traits_of(plan.config.engine.kind)
    least, share = server_bytes(plan.config, plan.shape, plan.lengths) / GB, engine.memory * plan.gpu.memory
    if traits.remote:
        group, servers = server_group(plan.config, plan.shape, plan.gpu), max(1, len(engine.servers))
        where = f"{servers} vLLM server{'s' * (servers > 1)} of {group} x {plan.gpu.name} beside these"
        return [f"sampling: {where}, each with at least {least:.1f} GB"]
    if plan.gpus > 1 and not traits.in_place:
        return ["vLLM in the process samples for one process: --set engine.kind=vllm-http for several"]
    if traits.in_place or least <= share:
        return []
    return [f"vLLM itself needs {least:.1f} GB: engine.memory={engine.memory:g} gives it {share:.1f}"]


def markdown(plans: Sequence[ResourcePlan]) -> str:
    rows = [Row(label, cells) for label, *cells in map(_cells, plans)]
    return Table(heads=HEADS, rows=rows, words=range(len(HEADS))).markdown()


def table(plans: Sequence[ResourcePlan]) -> Table:
    """One column per plan, for a terminal."""
    heads, *rows = zip(HEADS, *map(_cells, plans), strict=True)
    return Table(heads=heads, rows=[Row(label, cells) for label, *cells in rows])


def _cells(plan: ResourcePlan) -> list[str]:
    return [
        _model(plan),
        f"{plan.gpus} x {plan.gpu.name}" + (", sharded" if plan.sharded else ""),
        _engine(plan) + (", merged" if samples_merged(plan.config) else ""),
        f"{plan.memory.peak / GB:.1f} of {plan.gpu.memory:g}",
        "yes" if plan.fits else "no",
        plan.memory.largest,
        f"{plan.step:.1f}",
        f"{plan.seconds['sampling'] / plan.step:.0%}",
        f"{plan.minutes:,.0f}",
        f"{plan.minutes_at_limits:,.0f}",
    ]


def _engine(plan: ResourcePlan) -> str:
    kind = plan.config.engine.kind
    return kind if plan.asked == kind else f"{kind} ({plan.asked})"


def _model(plan: ResourcePlan) -> str:
    return plan.config.model.path.rstrip("/").rpartition("/")[2]
