"""`smopd plan` as a user meets it: figures, advice, errors, and the page that quotes it."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from plan_quotations import quotations, renewed
from transformers import LlamaConfig, MixtralConfig

from smopd.config import load_config
from smopd.planning import plan as timing
from smopd.planning.load import DEFAULTS, step_load
from smopd.planning.memory import memory
from smopd.planning.plan import changed, fitting_changes, make_plan, step_seconds
from smopd.planning.report import markdown, text
from smopd.planning.shapes import GPUS, SHAPES, find_shape

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def plan_of(recipe: str, gpu: str = "h100", gpus: int = 1, *overrides: str, **more):
    config = load_config(recipe, list(overrides))
    return make_plan(config, find_shape(config)[0], GPUS[gpu], gpus, **more)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-0.6B", 0.596), ("Qwen/Qwen3-1.7B", 1.721), ("Qwen/Qwen3-4B-Instruct-2507", 4.022),
        ("Qwen/Qwen3-8B", 8.191), ("Qwen/Qwen3-14B", 14.768), ("Qwen/Qwen3-32B", 32.762),
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8.030), ("meta-llama/Llama-3.3-70B-Instruct", 70.554),
    ],
)  # fmt: skip
def test_known_shapes_have_their_published_size(name, billions):
    shape, _ = find_shape(load_config("qwen3-8b", [f"model.path={name}"]))
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.001)
    assert shape in SHAPES.values()


def test_json_is_one_object_with_everything(smopd):
    code, out, _ = smopd("plan", "qwen3-1.7b", "--json", "--gpu", "H200")
    (plan,) = json.loads(out)["plans"]
    assert code == 0
    assert plan["memory"]["fits"] is True
    assert plan["memory"]["peak"] == max(plan["memory"]["rollout"], plan["memory"]["scoring"])
    assert plan["memory"]["largest"] == max(plan["memory"]["parts"], key=plan["memory"]["parts"].get)
    assert plan["minutes"]["run"] == pytest.approx(sum(plan["seconds"].values()) * 100 / 60)
    assert plan["minutes"]["run_at_limits"] > plan["minutes"]["run"]
    assert set(plan["seconds"]) == {"sampling", "scoring", "adapter to the engine"}


def test_it_says_what_to_change_and_the_change_is_enough(smopd):
    plan = plan_of("qwen3-8b", "rtx4090", 1, "engine.kind=hf", "train.recompute=false")
    assert not plan.fits
    assert dict(plan.changes) == {"train.recompute": True, "model.quantize": "nf4"}
    better = memory(changed(plan.config, *plan.changes), plan.shape, plan.gpu, plan.lengths)
    assert better.peak == plan.changed_peak <= 24e9
    hf = ("--set", "engine.kind=hf")
    _, out, _ = smopd("plan", "qwen3-8b", "--gpu", "rtx4090", *hf, "--set", "train.recompute=false")
    assert "does NOT fit" in out
    assert "--set train.recompute=true --set model.quantize=nf4" in out
    changes = ("--set", "train.recompute=true", "--set", "model.quantize=nf4")
    again = smopd("plan", "qwen3-8b", "--gpu", "rtx4090", *hf, *changes)[1]
    assert "fits: " in again
    assert "NOT" not in again


def test_no_change_is_proposed_that_is_not_needed():
    plan = plan_of("qwen3-4b", "rtx-pro-6000", 1, "train.micro_batch=4", "train.recompute=false")
    assert 1 <= len(plan.changes) <= 2
    for change in plan.changes:
        rest = [c for c in plan.changes if c != change]
        assert memory(changed(plan.config, *rest), plan.shape, plan.gpu, plan.lengths).peak > 96e9


def test_what_helps_is_said_even_where_it_is_not_enough(smopd):
    _, out, _ = smopd(
        "plan", "qwen3-8b", "--set", "model.path=meta-llama/Meta-Llama-3-70B", "--gpu", "rtx4090"
    )
    assert "what helps, and is not enough" in out
    assert "more GPUs" in out


def test_several_gpus_shard_only_where_whole_weights_do_not_fit(smopd):
    assert not plan_of("qwen3-1.7b", "h100", 8).sharded
    plan = plan_of(
        "qwen3-8b", "h100", 8, "model.path=Qwen/Qwen3-32B", "engine.kind=vllm-http", "train.recompute=true"
    )
    assert plan.sharded
    assert plan.fits
    whole = plan.shape.parameters * 2
    layer = plan.shape.linear / plan.shape.layers * 2
    assert plan.replicated > 80e9
    assert whole / 8 + layer < plan.memory.parts["base weights"] < whole / 8 + 2 * layer + plan.shape.head * 2
    _, out, _ = smopd("plan", "qwen3-8b", "--set", "model.path=Qwen/Qwen3-32B", "--gpus", "8")
    assert "planned with train.shard=true" in out


def test_the_hf_engine_samples_with_whole_weights():
    """So sharded weights that fit while scoring may not fit while sampling, and servers are the way out."""
    overrides = ("engine.kind=hf", "model.path=Qwen/Qwen3-32B", "train.recompute=true")
    plan = plan_of("qwen3-8b", "a100-40", 8, *overrides)
    assert plan.memory.scoring < 40e9 < plan.memory.rollout
    assert dict(plan.changes) == {"engine.kind": "vllm-http"}


def test_a_faster_gpu_a_better_use_of_it_and_shorter_replies_take_less_time():
    usual = plan_of("qwen3-8b", "a100-80", 1, "engine.kind=vllm").step
    assert plan_of("qwen3-8b", "h200", 1, "engine.kind=vllm").step < usual
    assert plan_of("qwen3-8b", "a100-80", 1, "engine.kind=vllm", mfu=0.7).step < usual
    assert plan_of("qwen3-8b", "a100-80", 1, "engine.kind=vllm", middle=50, answer=100).step < usual / 2
    assert plan_of("qwen3-8b", "a100-80", 1, "engine.kind=hf").step > usual


def test_sampling_reads_weights_and_cache_once_a_step():
    plan = plan_of("qwen3-8b", "h100", 1, "engine.kind=vllm", "rollout.batch=64")
    steps = plan.load.sampled.steps
    read = plan.shape.parameters * 2 - plan.shape.head * 2  # the embedding table is only looked up
    assert plan.seconds["sampling"] == pytest.approx(steps * read / (0.8 * 3350e9), rel=0.1)


def test_servers_share_the_sampling_and_grow_to_a_group():
    config = load_config(
        "qwen3-8b", ["model.path=meta-llama/Meta-Llama-3-70B", "engine.kind=vllm-http", "train.shard=true"]
    )
    plan = make_plan(config, find_shape(config)[0], GPUS["h100"], 8)
    two = changed(config, ("engine.servers", ["http://a", "http://b"]))
    shared = step_seconds(two, plan.shape, plan.gpu, plan.load, 8)
    assert shared["sampling"] < plan.seconds["sampling"]
    assert shared["scoring"] == plan.seconds["scoring"]


def test_a_share_too_small_for_vllm_is_said(smopd):
    _, out, _ = smopd(
        "plan", "qwen3-8b", "--set", "engine.kind=vllm", "--set", "engine.memory=0.1", "--gpu", "h100"
    )
    assert "vLLM itself needs" in out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gpu", "h1000"], "did you mean 'h100'? The GPUs are"),
        (["--gpu", "a100"], "a100-80, a100-40"),
        (["--model-config", "nosuch.json"], "nosuch.json: no such config.json; give a transformers"),
        (["--model-config", "broken.json"], "broken.json: not valid JSON"),
        (["--model-config", "other.json"], "other.json: transformers does not understand it"),
        (["--model-config", "experts"], "experts: not a dense decoder (it has 8 experts)"),
        (["--set", "model.path=nobody/nothing"], "give --model-config with its config.json"),
        (["--set", "optim.learning_rate=1"], "did you mean 'optim.lr'?"),
    ],
)
def test_errors_say_what_to_do(smopd, tmp_path, options, expected):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text('{"a": 1}')
    MixtralConfig().save_pretrained(tmp_path / "experts")
    code, out, err = smopd("plan", "qwen3-1.7b", *options)
    assert (code, out) == (2, "")
    assert expected in err


def test_any_config_will_do(smopd, tmp_path):
    LlamaConfig(hidden_size=512, num_hidden_layers=3, vocab_size=1000).save_pretrained(tmp_path / "model")
    for path in ("model", "model/config.json"):
        (plan,) = json.loads(smopd("plan", "qwen3-1.7b", "--model-config", path, "--json")[1])["plans"]
        assert (plan["shape"]["hidden"], plan["shape"]["layers"], plan["shape"]["normed"]) == (512, 3, False)


def test_data_on_this_machine_are_used(smopd):
    _, out, _ = smopd("plan", "pocket", "--gpu", "cpu")
    assert "lengths of the conversations: words of pocket:train" in out
    assert "fits: " in out


def test_help_has_an_example(smopd):
    code, out, _ = smopd("plan", "--help")
    assert code == 0
    assert "smopd plan" in out.split("Example")[1]


def test_vllm_that_does_not_sleep_is_put_to_sleep():
    awake = plan_of("qwen3-8b", "h100", 1, "engine.kind=vllm", "engine.memory=0.65", "train.recompute=true")
    assert not awake.fits
    assert fitting_changes(awake.config, awake.shape, awake.gpu, DEFAULTS, 1) == [("engine.sleep", True)]


def test_auto_is_vllm_on_a_gpu_and_transformers_without():
    config = changed(load_config("qwen3-1.7b"), ("engine.kind", "auto"))
    shape = find_shape(config)[0]
    on_gpu, on_cpu = (make_plan(config, shape, GPUS[name]) for name in ("h100", "cpu"))
    assert (on_gpu.config.engine.kind, on_cpu.config.engine.kind) == ("vllm", "hf")
    named = plan_of("qwen3-1.7b", "h100", 1, "engine.kind=vllm")
    assert on_gpu.minutes == named.minutes
    assert on_gpu.memory == named.memory
    assert "engine vllm (auto)" in text("x", on_gpu)
    assert "| hf (auto) |" in markdown([on_cpu])
    assert "(auto)" not in text("x", named)
    # vLLM in the process samples for one process, and from plain weights.
    assert make_plan(config, shape, GPUS["h100"], 2).config.engine.kind == "hf"
    quantized = changed(config, ("model.quantize", "nf4"))
    assert make_plan(quantized, shape, GPUS["h100"]).config.engine.kind == "hf"
    assert "--set engine.kind=vllm-http" in text("x", plan_of("qwen3-1.7b", "h100", 2, "engine.kind=vllm"))
    assert step_load(config, named.lengths).sampled == named.load.sampled  # asked without a GPU in mind


def test_an_engine_of_its_own_gets_the_adapter_in_the_bases_precision():
    plan = plan_of("qwen3-1.7b", "h100", 1, "engine.kind=vllm")
    weights = plan.shape.adapter(64)
    seconds = plan.seconds["adapter to the engine"]
    assert seconds == pytest.approx(2 * weights / timing.HANDOVER)
    wide = plan_of("qwen3-1.7b", "h100", 1, "engine.kind=vllm", "model.dtype=float32")
    assert wide.seconds["adapter to the engine"] == pytest.approx(2 * seconds)
    assert "adapter to the engine" not in plan_of("qwen3-1.7b", "h100", 1, "engine.kind=hf").seconds


def test_the_hf_engine_replays_its_layers_on_a_gpu():
    beside, folded = (
        plan_of("qwen3-1.7b", "h100", 1, "engine.kind=hf", f"rollout.merge={merge}")
        for merge in ("false", "true")
    )
    least = timing.REPLAYED * beside.shape.layers * beside.load.sampled.steps
    assert least < beside.seconds["sampling"] < 3 * least
    assert folded.seconds["sampling"] < beside.seconds["sampling"]
    # A layer that has to be gathered cannot be captured: Python issues it.
    sharded = plan_of("qwen3-1.7b", "h100", 2, "engine.kind=hf", "train.shard=true")
    assert sharded.seconds["sampling"] >= timing.ISSUED * sharded.shape.layers * sharded.load.sampled.steps


def test_a_gpu_pads_rows():
    config = load_config("qwen3-1.7b", ["engine.kind=vllm"])
    lengths = replace(DEFAULTS, middle=100.0, answer=200.0)
    on_cpu, on_gpu = (step_load(config, lengths, on_gpu=on_gpu) for on_gpu in (False, True))
    assert on_cpu.student.tokens < on_gpu.student.tokens < 1.2 * on_cpu.student.tokens
    assert on_gpu.products == pytest.approx(3 * on_gpu.scored)


QUOTED = quotations(PAGE.read_text())


@pytest.mark.parametrize(("command", "printed"), QUOTED, ids=[c for c, _ in QUOTED])
def test_the_page_quotes_what_the_command_prints(smopd, command, printed):
    code, out, err = smopd(*shlex.split(command)[1:])
    assert code == 0, err
    assert out == printed, "make docs"


def test_the_page_quotes_something():
    assert QUOTED


def test_quotations_are_renewed_and_nothing_else():
    text, table = "```\n$ smopd plan x\nold\n```\n", "```\n$ smopd plan y z\n```\n\n| 1 |\n| 2 |\n\n"
    page = f"a\n{text}b\n{table}c\n```\n$ smopd methods\n```\n"
    assert quotations(page) == [("smopd plan x", "old\n"), ("smopd plan y z", "| 1 |\n| 2 |\n")]
    new = renewed(page, lambda arguments: f"| {arguments[-1]} |\n")
    assert new == page.replace("old\n", "| x |\n").replace("| 1 |\n| 2 |\n", "| z |\n")


def test_the_papers_minutes_are_more_than_the_plans():
    """It reports 40 to 50 and does not say what sampled; here no conversation waits for another one."""
    overrides = ("engine.kind=vllm", "engine.sleep=true", "train.recompute=true", "train.row_tokens=8192")
    small, middle = (
        plan_of(recipe, "rtx-pro-6000", 1, *overrides).step * 100 / 60
        for recipe in ("qwen3-1.7b", "qwen3-4b")
    )
    assert 10 < small < middle < 40
