"""The card of an exported model. It contains no path or address of this machine."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.config_io import to_toml
from smopd.data import load_examples
from smopd.data.reading import generated
from smopd.evaluation.metrics import against
from smopd.evaluation.store import data_digest, load_outcomes
from smopd.files import file_digest, read_json
from smopd.formatting import interval, p_value, percent, points
from smopd.models.adapter_files import CONFIG, WEIGHTS
from smopd.pages import render_text
from smopd.runs.evaluations import BASE, Evaluated, evaluations_of
from smopd.runs.run import Run


def model_card(name: str, config: Config, adapter: Path, run: Path | None, dtype: str) -> str:
    """The README.md of an exported model, or of an adapter alone if `dtype` is empty."""
    base, digest = config.model.path, file_digest(adapter / WEIGHTS)
    finished = [e for e in evaluations_of(run, config)[0] if e.summary is not None] if run else []
    evaluations = [e for e in finished if e.side == BASE or e.identity.get("adapter") == digest]
    changes = [line for e in evaluations if e.side == BASE for line in _changes(e, evaluations)]
    facts = {
        "name": name,
        "config": config,
        "dtype": dtype,
        "base": public(base),
        "hub": base != "pocket" and not Path(base).expanduser().exists(),
        "rank": read_json(adapter / CONFIG).get("r"),
        "version": version("smopd"),
        "evaluated": bool(evaluations),
        "rows": sorted({row for e in evaluations for row in _rows(e)}),
        "changes": list(dict.fromkeys(changes)),
        "trained": _describe_training(config, adapter, run) if run else None,
    }
    return render_text(__package__, "model_card.md.jinja", **facts)


def public(name: str) -> str:
    """Reduce a local path to its last part; leave a hub name unchanged."""
    return Path(name).name if name.startswith(("/", "~", ".")) or Path(name).expanduser().exists() else name


def _rows(evaluation: Evaluated) -> Iterator[str]:
    who, data = "base" if evaluation.side == BASE else "this model", _data_of(evaluation)
    for view, v in (evaluation.summary or {})["views"].items():
        if view != "teacher":
            ends, counts = interval(v["low"], v["high"]), f"{v['correct']}/{v['total']}"
            yield " | ".join((who, data, view.upper(), percent(v["accuracy"]), ends, counts))


def _data_of(evaluation: Evaluated) -> str:
    return public(str(evaluation.identity.get("data", "")))


def _changes(base: Evaluated, evaluations: list[Evaluated]) -> Iterator[str]:
    for trained in (e for e in evaluations if e.side != BASE and e.conditions == base.conditions):
        before, after = load_outcomes(base.folder), load_outcomes(trained.folder)
        for view in dict.fromkeys(o.view for o in before):
            change = against(*([o for o in rows if o.view == view] for rows in (before, after)))
            if change["n"]:
                ends = f"[{points(change['low'])}, {points(change['high'])}]"
                counts = f"{change['gained']} gained, {change['lost']} lost, p {p_value(change['p'])}"
                difference = f"{points(change['difference'])} points {ends} ({counts})"
                yield f"{_data_of(base)}, {view.upper()}: {difference}"


def _describe_training(config: Config, adapter: Path, run: Path) -> dict[str, Any]:
    state = adapter / "state.json"
    step = read_json(state)["step"] if state.exists() else None
    row = next((row for row in Run(run).steps if row["step"] == step), {})
    shown = {key: row.get(key) for key in ("loss", "loss/middle", "loss/answer", "grad_norm")}
    last = [f"{key} {value:.4g}" for key, value in shown.items() if value is not None]
    about = {"step": step, "last": last, "method": public(config.method), "data": _data(config.data.train)}
    return about | {"settings": _settings(config)}


def _settings(config: Config) -> list[str]:
    """The tables of the config, without local paths and addresses."""
    names = ("train", "eval", "databases")
    data: dict[str, Any] = {name: public(getattr(config.data, name)) for name in names}
    data["verifiers"] = [public(name) for name in config.data.verifiers]
    model = {"path": public(config.model.path), "adapter": public(config.model.adapter)}
    parts = {"model": config.model.model_copy(update=model), "data": config.data.model_copy(update=data)}
    shown = config.model_copy(update=parts | {"method": public(config.method)})
    tables = [table.strip() for table in re.split(r"\n(?=\[)", to_toml(shown).strip())]
    return [table for table in tables if not table.startswith(("[engine]", "[user]"))]


def _data(name: str) -> str:
    path = Path(name).expanduser()
    if path.is_file():
        return f"`{path.name}`, sha256 {file_digest(path)}"
    if generated(name):
        return f"`{name}`, generated by smopd, digest {data_digest(load_examples(name))}"
    return f"`{public(name)}`"
