"""The card of an exported model: what was trained on what, before and after, how to use it, its limits.

No path or address of this machine stands in it.
"""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smopd.config import Config, to_toml
from smopd.data import load_examples
from smopd.data.reading import generated
from smopd.evaluation.metrics import against
from smopd.evaluation.store import data_digest, load_outcomes
from smopd.files import file_digest, read_json
from smopd.formatting import interval, p_value, percent, points
from smopd.models.adapter_files import CONFIG, WEIGHTS
from smopd.runs.evaluations import BASE, Evaluated, evaluations_of
from smopd.runs.run import Run

PAPER = "SMOPD, arXiv 2608.14647"


def model_card(name: str, config: Config, adapter: Path, run: Path | None, dtype: str) -> str:
    """README.md of an exported model; without a `dtype`, of an adapter alone."""
    base, hub = base_name(config), _on_hub(config.model.path)
    head = f"library_name: {'transformers' if dtype else 'peft'}\npipeline_tag: text-generation\n"
    head += "tags: [smopd, self-distillation, multi-turn]\n" + (f"base_model: {base}\n" if hub else "")
    method = f" with smopd's method `{public(config.method)}`, seed {config.seed}" if run else ""
    folded = f"The LoRA adapter is merged into the weights ({dtype})"
    kept = folded if dtype else "This is the LoRA adapter alone"
    parts = [
        f"---\n{head}---",
        f"# {name}",
        f"`{base}` after multi-turn on-policy self-distillation ({PAPER}){method}: trained to answer a task "
        "told over several turns as it answers the task told at once. "
        f"{kept}; exported by smopd {version('smopd')}.",
        f"**Licence**: the weights derive from `{base}`; its licence and terms of use apply to this model "
        "too. State them here before you publish it.",
    ]
    evaluations = _select_evaluations(adapter, run, config) if run else []
    if run:
        parts += _evaluations(evaluations)
    parts.append(_use(name, base, adapter, bool(dtype)))
    if run:
        parts.append(_training(config, adapter, Run(run)))
    parts.append(_limits(bool(evaluations)))
    if run:
        parts.append(_settings(config, base))
    return "\n\n".join(parts) + "\n"


def base_name(config: Config) -> str:
    return config.model.path if _on_hub(config.model.path) else public(config.model.path)


def public(name: str) -> str:
    """The last part of a local path; a hub name as it is."""
    return Path(name).name if name.startswith(("/", "~", ".")) or Path(name).expanduser().exists() else name


def _on_hub(base: str) -> bool:
    return not Path(base).expanduser().exists() and base != "pocket"


def _select_evaluations(adapter: Path, run: Path, config: Config) -> list[Evaluated]:
    """The finished evaluations of the base and of the checkpoint that is exported."""
    digest = file_digest(adapter / WEIGHTS)
    finished = [e for e in evaluations_of(run, config)[0] if e.summary is not None]
    return [e for e in finished if e.side == BASE or e.identity.get("adapter") == digest]


def _evaluations(evaluations: list[Evaluated]) -> list[str]:
    if not evaluations:
        return []
    rows = []
    for e in evaluations:
        who, where = "base" if e.side == BASE else "this model", public(str(e.identity.get("data", "")))
        for view, v in (e.summary or {})["views"].items():
            counts = f"{interval(v['low'], v['high'])} | {v['correct']}/{v['total']}"
            if view != "teacher":
                rows.append(f"| {who} | {where} | {view.upper()} | {percent(v['accuracy'])} | {counts} |")
    head = "| | data | view | accuracy | 95% interval | correct |\n|---|---|---|---|---|---|\n"
    legend = "FULL: the whole task in one message. SHARDED: the same task told over several turns."
    tables = head + "\n".join(sorted(dict.fromkeys(rows)))
    changes = [line for base in evaluations if base.side == BASE for line in _changes(base, evaluations)]
    lines = "".join(f"\n- {line}" for line in dict.fromkeys(changes))
    paired = f"\n\nThe same tasks before and after, paired:\n{lines}" if lines else ""
    return [f"## Evaluation\n\n{tables}\n\n{legend}{paired}"]


def _changes(base: Evaluated, evaluations: list[Evaluated]) -> list[str]:
    """From the base to this model, on the same data with the same settings."""
    lines = []
    for trained in (e for e in evaluations if e.side != BASE and e.conditions == base.conditions):
        before, after = load_outcomes(base.folder), load_outcomes(trained.folder)
        for view in dict.fromkeys(o.view for o in before):
            change = against(*([o for o in rows if o.view == view] for rows in (before, after)))
            if change["n"]:
                ends = f"[{points(change['low'])}, {points(change['high'])}]"
                counts = f"{change['gained']} gained, {change['lost']} lost, p {p_value(change['p'])}"
                where = f"{public(str(base.identity.get('data', '')))}, {view.upper()}"
                lines.append(f"{where}: {points(change['difference'])} points {ends} ({counts})")
    return lines


def _use(name: str, base: str, adapter: Path, folded: bool) -> str:
    if folded:
        lines = [
            "from transformers import pipeline", "",
            f'chat = pipeline("text-generation", "{name}")',
            'print(chat([{"role": "user", "content": "Hello."}])[0]["generated_text"][-1]["content"])',
        ]  # fmt: skip
        serve = f"vllm serve {name}"
    else:
        lines = [
            "from peft import PeftModel", "from transformers import AutoModelForCausalLM", "",
            f'base = AutoModelForCausalLM.from_pretrained("{base}")',
            f'model = PeftModel.from_pretrained(base, "{name}")',
        ]  # fmt: skip
        rank = read_json(adapter / CONFIG).get("r")
        short = name.rpartition("/")[2]
        serve = f"vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules {short}={name}"
    code = "\n".join(lines)
    nothing = "It is used as its base is: no special prompt, no tool."
    return f"## Use\n\n```python\n{code}\n```\n\n```\n{serve}\n```\n\n{nothing}"


def _training(config: Config, adapter: Path, run: Run) -> str:
    state = adapter / "state.json"
    step = read_json(state)["step"] if state.exists() else None
    lines = [f"- step {step} of {config.train.steps}, {config.train.rollouts} conversations a step"]
    lines += [f"- seed {config.seed}"]
    if config.model.quantize != "none":
        lines.append(f"- base weights in {config.model.quantize} while training")
    lines.append(f"- training data: {_data(config.data.train)}")
    rows = {row["step"]: row for row in run.steps}
    if step in rows:
        shown = {key: rows[step].get(key) for key in ("loss", "loss/middle", "loss/answer", "grad_norm")}
        numbers = [f"{key} {value:.4g}" for key, value in shown.items() if value is not None]
        lines.append(f"- last step: {', '.join(numbers)}")
    return "## Training\n\n" + "\n".join(lines)


def _limits(evaluated: bool) -> str:
    beyond = "other tasks, languages, longer conversations and safety are open"
    unknown = "whether it is better than its base, in one message or in several, is not known"
    measured = f"Nothing was measured beyond the table above: {beyond}."
    return f"""## Limits

- It learnt to rely less on its own earlier replies and was taught nothing new: what the base cannot solve \
in one message, do not expect this model to solve.
- One training run with one seed: intervals and p values are over the tasks, not over training runs.
- {measured if evaluated else f"It was not evaluated: {unknown}."}"""


def _settings(config: Config, base: str) -> str:
    data: dict[str, Any] = {
        name: public(getattr(config.data, name)) for name in ("train", "eval", "databases")
    }
    data["verifiers"] = [public(name) for name in config.data.verifiers]
    model = config.model.model_copy(update={"path": base, "adapter": public(config.model.adapter)})
    shown = {"model": model, "data": config.data.model_copy(update=data), "method": public(config.method)}
    tables = re.split(r"\n(?=\[)", to_toml(config.model_copy(update=shown)).strip())
    # Addresses are nobody's business.
    kept = [table.strip() for table in tables if not table.startswith(("[engine]", "[user]"))]
    return "## Settings\n\n```toml\n" + "\n\n".join(kept) + "\n```"


def _data(name: str) -> str:
    path = Path(name).expanduser()
    if path.is_file():
        return f"`{path.name}`, sha256 {file_digest(path)}"
    if generated(name):
        return f"`{name}`, generated by smopd, digest {data_digest(load_examples(name))}"
    return f"`{public(name)}`"
