"""The pocket model: built the same twice, a tokenizer that fits its world, and lost in conversation in the
way that matters.
"""

import json
from dataclasses import asdict, replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from smopd.chat import DirtyContext
from smopd.config import load_config
from smopd.data import load_examples
from smopd.data.pocket_world import LARGEST, tasks
from smopd.evaluation import summarise, verify
from smopd.evaluation.session import run_evaluation
from smopd.pocket import MODEL_DIR
from smopd.seeds import rng
from tools.pocket import dialogues
from tools.pocket.build import BuildSettings, build, encode, main
from tools.pocket.dialogues import ANCHOR_ACTIONS, ANCHOR_MATH, clean_reply, derive, mixed_dialogue

TINY = replace(BuildSettings(), steps=4, batch=4, tasks=60, width=32, layers=1, warmup=1)
ANCHORED = tuple(opener.split()[0] for opener in (*ANCHOR_MATH, *ANCHOR_ACTIONS))


def test_a_build_is_deterministic_and_loads_like_any_checkpoint(tmp_path):
    for name in ("a", "b"):
        build(tmp_path / name, TINY)
    for file in ("model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    build(tmp_path / "c", replace(TINY, seed=1))
    assert torch.get_num_threads() == 1  # the caller's setting is back
    assert not torch.equal(
        *(load_file(tmp_path / n / "model.safetensors")["model.embed_tokens.weight"] for n in ("a", "c"))
    )
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "a").config.model_type == "qwen3"
    assert AutoTokenizer.from_pretrained(tmp_path / "a").chat_template


def test_the_shipped_model_was_built_with_the_settings_of_the_command():
    settings = json.loads((MODEL_DIR / "build.json").read_text())
    assert settings == json.loads(json.dumps(asdict(BuildSettings())))


def test_a_folder_that_exists_is_not_overwritten(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path)])
    assert f"{tmp_path}: exists" in capsys.readouterr().err


def test_the_templates_text_and_the_builders_ids_are_the_same(pocket):
    for item in islice(tasks("train", 5), 12):
        for write in (dialogues.full_dialogue, dialogues.prefix_dialogue, mixed_dialogue):
            messages = write(item, rng("t", item.example.id))
            ids, labels = encode(pocket.renderer.tokenizer, messages)
            assert ids == pocket.renderer.encode(pocket.renderer.text(messages, generation_prompt=False))
            labelled = [i for i, label in zip(ids, labels, strict=True) if label != -100]
            replies = [m["content"] for m in messages if m["role"] == "assistant"]
            assert pocket.renderer.tokenizer.decode(labelled) == "".join(f"{r}<|end|>" for r in replies)


def test_every_number_of_the_world_is_one_token_and_any_text_survives(pocket):
    encoded = [pocket.renderer.encode(f" {n}") for n in range(LARGEST + 1)]
    assert all(len(ids) == 1 for ids in encoded)
    for text in ("Grüße, 東京 🙂\n\ttabs", "f(x) = 3.14 - y['a']"):
        assert pocket.renderer.decode(pocket.renderer.encode(text)) == text


def test_replies_written_for_training_are_right_where_they_derive():
    for item in islice(tasks("train", 6), 200):
        assert verify(
            item.example, derive(item, set(item.task.facts), rng("d", item.example.id)).text
        ).correct


def test_most_replies_in_mixed_dialogues_are_anchored_and_few_clean_ones():
    def share(texts: list[str]) -> float:
        return sum(t.startswith(ANCHORED) for t in texts) / len(texts)

    dirty, clean = [], []
    for item in islice(tasks("train", 7), 600):
        dirty += [m["content"] for m in mixed_dialogue(item, rng("m", item.example.id))[4::2]]
        clean.append(clean_reply(item, set(item.task.facts), item.order[-1], rng("c", item.example.id)).text)
    assert 0.55 < share(dirty) < 0.8
    assert 0.08 < share(clean) < 0.25


@pytest.fixture(scope="module")
def outcomes():
    config = load_config("pocket")
    return run_evaluation(config, load_examples("pocket:eval:200"), "test")


def sharded(outcomes):
    return [o for o in outcomes if o.view == "sharded"]


@pytest.mark.slow
def test_it_solves_the_whole_task_and_is_lost_when_it_is_told_in_parts(outcomes):
    views = summarise(outcomes)["views"]
    assert views["full"]["accuracy"] >= 0.95
    assert 0.20 <= views["sharded"]["accuracy"] <= 0.60
    for task in ("math", "actions"):
        assert views["full"]["by_task"][task]["accuracy"] >= 0.93
        assert 0.15 <= views["sharded"]["by_task"][task]["accuracy"] <= 0.65


@pytest.mark.slow
def test_it_fails_by_building_on_its_premature_guess(outcomes):
    wrong = [o for o in sharded(outcomes) if not o.correct]
    assert all(o.status == "ok" for o in wrong)  # an answer every time, no garbage
    assert all(t["stop"] == "end" for o in wrong for t in o.turns)
    anchored = [o for o in wrong if o.turns[-1]["reply"].startswith(ANCHORED)]
    assert len(anchored) / len(wrong) > 0.75
    derived = [o for o in sharded(outcomes) if not o.turns[-1]["reply"].startswith(ANCHORED)]
    assert sum(o.correct for o in derived) / len(derived) > 0.65  # where it derives again it is mostly right


def test_it_is_uncertain_where_anchoring_and_deriving_part(pocket):
    """The chance that the next reply begins as an anchored one, after one guess: never near 0 or 1."""
    opening_ids = {pocket.renderer.encode(opener)[0] for opener in (*ANCHOR_MATH, *ANCHOR_ACTIONS)}
    for item in islice(tasks("eval", 8), 20):
        dirty = DirtyContext(pocket.renderer, item.example)
        dirty.ask(item.example.shards[0])
        dirty.answer(
            [
                *pocket.renderer.encode(derive(item, set(), rng("u", item.example.id)).text),
                *pocket.renderer.end_ids,
            ]
        )
        with torch.no_grad():
            p = (
                pocket.model(input_ids=torch.tensor([dirty.ask(item.example.shards[1])]))
                .logits[0, -1]
                .softmax(-1)
            )
        assert 0.15 < sum(p[w].item() for w in opening_ids) < 0.95


@pytest.mark.long
def test_the_quickstarts_counts(smopd):
    """FULL and SHARDED of 400, before and after training; other kernels may change a few of the latter."""
    code, out, err = smopd("quickstart", "--json")
    assert code == 0, err
    shown = json.loads(out)
    counts = [
        [side["views"][v]["correct"] for v in ("full", "sharded")]
        for side in (shown["base"], shown["trained"])
    ]
    assert counts[0] == [396, 171]
    assert counts[1] == pytest.approx([388, 304], abs=4)
