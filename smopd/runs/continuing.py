"""Which settings may change when a run is resumed: always those that no result depends on
(`smopd.config.MAY_CHANGE`), and those in `RECORDED`, of which the steps can only increase. A change of the
latter is written into starts.jsonl, so that older checkpoints are still accepted. Any other is refused.
"""

from collections.abc import Iterable
from typing import Any

from smopd.config import MAY_CHANGE, Config
from smopd.config_io import flatten, leaves, nest, scalar

RECORDED = ("train.steps", "train.checkpoint_every", "train.eval_every", "train.patience")
Changes = dict[str, tuple[Any, Any]]  # setting -> (value in the run folder, value now)


def changes(stored: Config, now: Config) -> Changes:
    """Return the settings that differ and must be recorded or refused."""
    old, new = flatten(stored.model_dump()), flatten(now.model_dump())
    pairs = {key: (old.get(key), new.get(key)) for key in old | new if not key.startswith(MAY_CHANGE)}
    return {key: (before, after) for key, (before, after) in pairs.items() if before != after}


def refused(changed: Changes) -> list[str]:
    lines = []
    for key, (old, new) in changed.items():
        if key not in RECORDED:
            lines.append(f"{key}: {_format_value(old)} in the run folder, {_format_value(new)} now")
        elif key == "train.steps" and new < old:
            lines.append(f"{key}: {old} in the run folder, {new} now: a run can be lengthened, not shortened")
    return lines


def of_all_steps(config: Config, before: int) -> list[str]:
    """Return a line for everything else that depends on the number of steps, which was `before`."""
    steps, lines = config.train.steps, []
    if config.optim.schedule != "constant":
        falls = f"optim.schedule = {config.optim.schedule} falls to zero at the last step"
        lines.append(f"{falls}: until now at step {before}, from here on at step {steps}")
    values = flatten(config.model_dump())
    for key, field in leaves(type(config)).items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or not extra.get("share_of_steps"):
            continue
        table, idle = key.rpartition(".")[0], dict[str, Any](extra.get("idle") or {})  # type: ignore[arg-type]
        if values[key] and not any(values[f"{table}.{name}"] == value for name, value in idle.items()):
            share, value = f"{key} = {values[key]:.3g} is a share of all steps", values[key]
            lines.append(f"{share}: {value * before:.4g} steps until now, {value * steps:.4g} now")
    return lines


def lengthened_message(config: Config, before: int) -> str:
    lengthened = f"lengthened from {before} to {config.train.steps} steps"
    if lines := of_all_steps(config, before):
        unlike = "the steps so far are not those of a run that was this long from its beginning"
        return "\n  ".join([f"{lengthened}; {unlike}:", *lines])
    return f"{lengthened}; it ends as a run that was this long from its beginning"


def earlier_settings(config: Config, starts: Iterable[dict[str, Any]]) -> list[Config]:
    """The settings the run had before each recorded change, newest first."""
    values, configs = flatten(config.model_dump()), []
    for row in reversed(list(starts)):
        if undone := {key: pair[0] for key, pair in row.get("changed", {}).items() if key in RECORDED}:
            values |= undone
            configs.append(type(config).model_validate(nest(values)))
    return configs


def _format_value(value: Any) -> str:
    return "nothing" if value is None else scalar(value)
