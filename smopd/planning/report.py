"""A plan as text, as one row of a table, and as JSON. Plain text of fixed widths: the same everywhere."""

from typing import Any

from smopd.config_io import scalar
from smopd.formatting import one_line
from smopd.planning import timing
from smopd.planning.load import engine_traits
from smopd.planning.memory import server_bytes
from smopd.planning.plan import ResourcePlan
from smopd.planning.timing import samples_merged, server_group

GB = 1e9
WIDTH, GAP = 80, 2  # of a terminal, and between columns
COLUMNS = ("model", "GPUs", "engine", "GB needed", "fits", "largest part", "s a step", "sampling",
           "minutes", "at the limits")  # fmt: skip


def to_json(recipe: str, plan: ResourcePlan, source: str) -> dict[str, Any]:
    """Everything, in bytes, tokens and seconds."""
    load, needs, lengths = plan.load, plan.memory, plan.lengths
    return {
        "recipe": recipe, "model": plan.config.model.path,
        "shape": {**vars(plan.shape), "parameters": plan.shape.parameters, "source": source},
        "gpu": vars(plan.gpu), "gpus": plan.gpus, "sharded": plan.sharded,
        "memory": {
            **vars(needs), "peak": needs.peak, "largest": plan.largest, "fits": plan.fits,
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
            "data": lengths.source, "bandwidth_share": timing.BANDWIDTH,
            "handover_bytes_a_second": timing.HANDOVER,
        },
    }  # fmt: skip


def text(recipe: str, plan: ResourcePlan) -> str:
    """The whole plan for a person."""
    config, load, lengths = plan.config, plan.load, plan.lengths
    count = plan.shape.parameters / 1e6
    size = f"{count / 1000:.2f} billion" if count >= 1000 else f"{count:.1f} million"
    split = ""
    if plan.gpus > 1:
        split = ", base weights sharded (FSDP2)" if plan.sharded else ", base weights on every GPU"
    gpus = f"{plan.gpus} x {plan.gpu.name} ({plan.gpu.memory:g} GB){split}; engine {_engine_name(plan)}"
    work = {
        "sampling": f"{load.sampled.tokens:,.0f} tokens",
        "scoring": f"{load.student.tokens:,.0f} packed tokens of the student, "
        f"{load.teacher.tokens:,.0f} of the teacher",
    }
    lines = [
        f"{recipe}: {_model(plan)}, {size} weights, {config.model.dtype}; {gpus}",
        "",
        f"{'memory on each GPU':<34}{'GB':>8}",
        *(f"{name:<34}{size / GB:>8.1f}" for name, size in plan.memory.parts.items()),
        f"{'peak while scoring':<34}{plan.memory.scoring / GB:>8.1f}",
        f"{'peak while sampling':<34}{plan.memory.rollout / GB:>8.1f}",
        *_verdict(plan),
        *_engine(plan),
        f"planned for the largest micro-batch: {max(lengths.turns)} turns, every reply at its limit",
        "",
        f"{f'a step, rollouts a process: {load.rollouts}':<34}{'seconds':>8}",
        *(
            f"{name:<34}{seconds:>8.1f}  {work.get(name, '')}".rstrip()
            for name, seconds in plan.seconds.items()
        ),
        "",
        f"{config.train.steps} steps: {plan.minutes:,.0f} minutes; "
        f"{plan.minutes_at_limits:,.0f} if every reply reaches its limit",
        f"assumed: replies of {lengths.middle:.0f} and {lengths.answer:.0f} tokens (--middle, --answer), "
        f"{plan.mfu:.0%} of the published rate (--mfu)",
        f"lengths of the conversations: {lengths.source}",
        "counted: tokens, bytes; estimated: every second (docs/performance.md)",
    ]
    return "\n".join(lines)


def _verdict(plan: ResourcePlan) -> list[str]:
    room, peak = plan.gpu.memory, plan.memory.peak / GB
    replicated, changed = plan.replicated / GB, plan.changed_peak / GB
    lines = []
    if plan.sharded and replicated > room:
        whole = f"whole weights on every GPU would need {replicated:.1f} GB"
        lines.append(f"{whole}: planned with train.shard=true")
    largest = f"largest part: {plan.largest}, {plan.memory.parts[plan.largest] / GB:.1f} GB"
    if plan.fits:
        return [*lines, f"fits: {peak:.1f} of {room:g} GB; {largest}"]
    lines.append(f"does NOT fit: {peak:.1f} of {room:g} GB; {largest}")
    changes = ((key, value if isinstance(value, str) else scalar(value)) for key, value in plan.changes)
    if options := " ".join(f"--set {key}={value}" for key, value in changes):
        promise = "to make it fit" if changed <= room else "what helps, and is not enough"
        lines.append(f"{promise} ({changed:.1f} GB): {options}")
    if changed > room:
        lines.append("more GPUs (--gpus, with train.shard=true) or larger ones are needed")
    return lines


def _engine(plan: ResourcePlan) -> list[str]:
    engine, traits = plan.config.engine, engine_traits(plan.config)
    least = server_bytes(plan.config, plan.shape, plan.lengths) / GB
    if traits.remote:
        group, servers = server_group(plan.config, plan.shape, plan.gpu), max(1, len(engine.servers))
        where = f"{servers} vLLM server{'s' * (servers > 1)} of {group} x {plan.gpu.name} beside these"
        return [f"sampling: {where}, each with at least {least:.1f} GB"]
    if plan.gpus > 1 and not traits.in_place:
        return ["vLLM in the process samples for one process: --set engine.kind=vllm-http for several"]
    given = engine.memory * plan.gpu.memory
    if traits.in_place or least <= given:
        return []
    return [f"vLLM itself needs {least:.1f} GB: engine.memory={engine.memory:g} gives it {given:.1f}"]


def markdown(plans: list[ResourcePlan]) -> str:
    """One row a plan, as Markdown."""
    head, *rows = [f"| {' | '.join(row)} |" for row in (COLUMNS, *map(_cells, plans))]
    return "\n".join([head, "|" + "---|" * len(COLUMNS), *rows])


def table(plans: list[ResourcePlan], width: int = WIDTH) -> str:
    """One column a plan, for a terminal; as many beside each other as fit, the rest below."""
    names = max(map(len, COLUMNS))
    columns = [[one_line(cell, width - names - GAP) for cell in _cells(plan)] for plan in plans]
    blocks: list[list[str]] = []
    for column in columns:
        wide = max(map(len, column)) + GAP
        if not blocks or len(blocks[-1][0]) + wide > width:
            blocks.append([f"{name:<{names}}" for name in COLUMNS])
        blocks[-1] = [f"{line}{cell:>{wide}}" for line, cell in zip(blocks[-1], column, strict=True)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _cells(plan: ResourcePlan) -> list[str]:
    return [
        _model(plan),
        f"{plan.gpus} x {plan.gpu.name}" + (", sharded" if plan.sharded else ""),
        _engine_name(plan) + (", merged" if samples_merged(plan.config) else ""),
        f"{plan.memory.peak / GB:.1f} of {plan.gpu.memory:g}",
        "yes" if plan.fits else "no",
        plan.largest,
        f"{plan.step:.1f}",
        f"{plan.seconds['sampling'] / plan.step:.0%}",
        *(f"{minutes:,.0f}" for minutes in (plan.minutes, plan.minutes_at_limits)),
    ]


def _engine_name(plan: ResourcePlan) -> str:
    kind = plan.config.engine.kind
    return kind if plan.asked == kind else f"{kind} ({plan.asked})"


def _model(plan: ResourcePlan) -> str:
    return plan.config.model.path.rstrip("/").rpartition("/")[2]
