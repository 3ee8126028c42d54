"""Run folders that were never trained, to look at: conversations, token logs and metrics of any size and with
any text in them.
"""

import json
from pathlib import Path

import numpy as np
import torch

from smopd.chat.messages import user
from smopd.config import load_config
from smopd.config_io import to_toml
from smopd.evaluation import tokens as evaluation_tokens
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import summarise
from smopd.evaluation.store import EvaluationFolder, load_identity
from smopd.files import digest, file_digest, write_jsonl, write_text
from smopd.runs import tokens as training_tokens
from smopd.runs.evaluations import list_evaluation
from smopd.scoring.token_log import Others, write_tokens
from smopd.study.plan import load_study
from smopd.study.run import StudyFolder

HOSTILE = (
    '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\u2028]]>\u202e'
    "\"'`${window.hit=1}</script>"
)
WORDS = ["The", "lamp", "costs", "four", "coins", "and", "the", "second", "half", "as", "much", "so", "six"]


def made_run(
    path: Path, items: int = 12, steps: int = 3, rollouts: int = 2, length: int = 8, text: str = "",
    vocabulary: int = 50, seed: int = 0,
) -> Path:  # fmt: skip
    """A run with evaluations before and after and a token log; `text` stands wherever somebody may write."""
    draw = np.random.default_rng(seed)
    config = load_config("pocket", [f"seed={seed}", f"train.steps={steps}", "train.save_tokens=true"])
    write_text(path / "config.toml", to_toml(config))
    rows = [
        {"step": k, "loss": 1 / k, "loss/middle": 0.5 / k, "loss/answer": 0.5 / k, "outcome": k / (k + 1),
         "delta": 0.3 / k, "kept": 0.8, "stop/end": 9, "stop/length": 1, "tokens/sampled": 100, "skipped": 0}
        for k in range(1, steps + 1)
    ]  # fmt: skip
    write_jsonl(path / "metrics.jsonl", rows)
    times = {"seconds/rollout": 1.0, "seconds/scoring": 0.7, "seconds/update": 0.1, "seconds/step": 1.8}
    write_jsonl(path / "timings.jsonl", [{"step": row["step"], **times} for row in rows])
    write_jsonl(
        path / "warnings.jsonl", [{"step": 2, "cause": "x", "warning": f"the gradient is not finite {text}"}]
    )
    pieces = {k: " " + WORDS[k % len(WORDS)] for k in range(vocabulary)} | ({0: text} if text else {})
    for stage, chance in (("base", 0.4), ("trained", 0.8)):
        adapter = "a" if stage == "trained" else None
        made_evaluation(path / "eval" / stage, items, chance, length, pieces, text, draw, adapter)
        side = "base" if stage == "base" else f"step-{steps:06d}"
        of = digest(load_identity(path / "eval" / stage))
        list_evaluation(path, path / "eval" / stage, side, of, ())
    for step in range(1, steps + 1):
        _made_step(path, step, rollouts, length, pieces, text, draw)
    return path


def made_evaluation(
    path: Path, items: int, chance: float, length: int, pieces: dict[int, str], text: str,
    draw: np.random.Generator, adapter: str | None = None,
) -> None:  # fmt: skip
    """A finished evaluation of FULL and SHARDED, every reply of them logged."""
    outcomes, answer = [], 3
    for view in ("full", "sharded"):
        conversations = []
        for k in range(items):
            count = 1 if view == "full" else 2 + k % 3
            ids = [draw.integers(0, len(pieces), length) for _ in range(count)]
            conversations.append(ids)
            turns = [
                {"user": f"message {t + 1} of item {k} {text}",
                 "reply": "".join(pieces[i] for i in one.tolist()), "stop": "end",
                 "tokens": length, "right": bool((k + t) % 2)}
                for t, one in enumerate(ids)
            ]  # fmt: skip
            right = bool(draw.random() < chance)
            outcomes.append(
                Outcome(f"item-{k}{text}", view, 0, f"task-{k % 2}{text}", 2 + k % 3, turns, right, right,
                        f"{answer}{text}", "ok", text, f"Solve it. {text}", f"The whole of item {k}. {text}",
                        {"value": f"{answer}{text}"})
            )  # fmt: skip
        _log_evaluation(
            path / "tokens" / f"{view}-00000.safetensors",
            view,
            conversations,
            outcomes[-items:],
            pieces,
            draw,
        )
    identity = {"examples": "d1", "adapter": adapter, "model": "pocket"}
    with EvaluationFolder(path, identity) as folder:
        folder.add(outcomes)
        folder.finish(outcomes, summarise(outcomes))


def made_study(path: Path, items: int = 10) -> Path:
    """A finished study of two arms and two seeds."""
    tree = 'name = "tiny"\ntitle = "Two arms"\nrecipe = "pocket"\nseeds = [1, 2]\nreference = "baseline"\n'
    tree += "".join(f'[[arms]]\nname = "{arm}"\nmethod = "{arm}"\n' for arm in ("baseline", "entropy"))
    write_text(path / "tiny.toml", tree)
    folder = StudyFolder(path / "out", load_study(path / "tiny.toml"))
    folder.prepare()
    pieces, draw = {k: f" {word}" for k, word in enumerate(WORDS)}, np.random.default_rng(0)
    made_evaluation(folder.base("pocket") / "eval", items, 0.3, 4, pieces, "", draw)
    for cell in folder.study.cells:
        place = folder.cell(cell)
        write_text(place / "config.toml", to_toml(cell.config))
        checkpoint = place / "checkpoints" / "step-000002"
        write_text(checkpoint / "adapter_model.safetensors", cell.label)
        write_text(checkpoint / "state.json", json.dumps({"smopd": "0"}))
        write_jsonl(place / "metrics.jsonl", [{"step": k, "loss": 1 / k} for k in (1, 2)])
        chance = 0.9 if cell.arm == "entropy" else 0.2
        adapter = file_digest(checkpoint / "adapter_model.safetensors")
        made_evaluation(place / "eval" / "trained", items, chance, 4, pieces, "", draw, adapter)
    return folder.path


def _others(ids: np.ndarray, vocabulary: int, draw: np.random.Generator) -> tuple[Others, torch.Tensor]:
    """Likely tokens around a given probability of the sampled one."""
    logp = np.log(draw.uniform(0.2, 0.99, len(ids)))
    top = draw.integers(0, vocabulary, (len(ids), 3))
    rest = np.log((1 - np.exp(logp))[:, None] * np.array([0.6, 0.3, 0.05]) + 1e-9)
    others = Others.of(torch.tensor(ids), torch.tensor(top), torch.tensor(rest))
    return others, torch.tensor(logp, dtype=torch.float32)


def typed(values, types):
    """Columns of a token log in the types it is written in."""
    return {name: torch.tensor(values[name]).to(getattr(torch, kind)) for name, kind in types.items()}


def _log_evaluation(path, view, conversations, outcomes, pieces, draw):
    ids = np.concatenate([one for replies in conversations for one in replies])
    places = [(c, t, len(one)) for c, replies in enumerate(conversations) for t, one in enumerate(replies)]
    others, logp = _others(ids, len(pieces), draw)
    values = {
        "conversation": np.concatenate([np.full(n, c) for c, _, n in places]),
        "turn": np.concatenate([np.full(n, t) for _, t, n in places]),
        "position": np.concatenate([np.arange(n) for _, _, n in places]), "token": ids,
        "entropy": draw.uniform(0, 2.5, len(ids)), "logp": logp.numpy(),
    }  # fmt: skip
    columns = typed(values, evaluation_tokens.TYPES)
    names = {"ids": [o.id for o in outcomes], "view": view, "run": 0, "pieces": pieces}
    write_tokens(path, columns, {"student": others}, names)


def _made_step(path, step, rollouts, length, pieces, text, draw):
    turns, count = 3, rollouts * 3 * length
    ids = draw.integers(0, len(pieces), count)
    others, logp = _others(ids, len(pieces), draw)
    more, teacher = _others(ids, len(pieces), draw)
    number = np.arange(count)
    values = {
        "rollout": number // (turns * length), "turn": number // length % turns,
        "part": (number // length % turns == turns - 1).astype(int), "position": number % length,
        "token": ids,
        "entropy": draw.uniform(0, 2.5, count), "teacher_entropy": draw.uniform(0, 2.5, count),
        "divergence": draw.exponential(0.1, count), "student_logp": logp.numpy(),
        "teacher_logp": teacher.numpy(),
        "kept": draw.random(count) < 0.8, "clipped": draw.random(count) < 0.1,
        "weight": 0.2 + 0.2 * (number // length % turns),
    }  # fmt: skip
    columns = typed(values, training_tokens.TYPES)
    columns["view"] = torch.zeros(count, dtype=torch.uint8)
    names = [f"train-{step}-{k}{text}" for k in range(rollouts)]
    log = training_tokens.Columns(
        columns,
        names,
        ["middle", "answer"],
        ["middle"],
        ["sharded"],
        {"student": others, "teacher": more},
        pieces,
    )
    training_tokens.write(path / "tokens" / f"step-{step:06d}.safetensors", log)
    rows, seen = [], []
    for k, name in enumerate(names):
        reply_ids = ids[k * turns * length :][: turns * length].reshape(turns, length)
        rows.append({
            "id": name, "task": "task-0", "sharded": [
                {"user": f"message {t + 1} {text}", "reply": "".join(pieces[i] for i in one.tolist()),
                 "stop": "end", "tokens": length} for t, one in enumerate(reply_ids)],
            "full": None, "correct": bool(k % 2), "extracted": "3", "expected": {"value": "3"}, "loss": 0.1,
        })  # fmt: skip
        contexts = [
            {"term": "middle" if t < turns - 1 else "answer", "view": "sharded", "turn": t,
             "contexts": [{"weight": 1.0, "messages": [user(f"clean {t + 1} {text}")]}]}
            for t in range(turns)
        ]  # fmt: skip
        seen.append({"replies": contexts})
    write_jsonl(path / "rollouts" / f"step-{step:06d}.jsonl", rows)
    write_jsonl(path / "tokens" / f"step-{step:06d}.contexts.jsonl", seen)


def index_of(page: Path) -> dict:
    """What the pages were told at once."""
    return json.loads(unpacked(page.parent / "data" / "index.js"))


def unpacked(script: Path) -> bytes:
    """The bytes that a data script hands over."""
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(script.read_text().split('"')[3]))
