"""Several processes: the update does not depend on how many there are, nor on whether the frozen weights are
split among them.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from support import python_processes
from support.runs import (
    COMMAND,
    checkpoint,
    free_port,
    metrics,
    rows,
    set_words,
    take_step,
    train,
    trainer_of,
)
from transformers import AutoModelForCausalLM

from smopd.config import load_config
from smopd.errors import UserError
from smopd.files import read_jsonl
from smopd.pocket import MODEL_DIR
from smopd.rollout.assembly import refuse_processes
from smopd.runs.writer import RunFolder
from smopd.training.loop import Trainer
from smopd.training.processes import Processes

SETTINGS = ["train.steps=3", "train.rollouts=5", "train.micro_batch=2", "train.checkpoint_every=2",
            "train.keep_checkpoints=9", "rollout.middle_tokens=24", "rollout.answer_tokens=32",
            "objective.rho=0.5", "lora.r=8", "lora.alpha=16", "train.row_tokens=400", "optim.lr=5e-6",
            "optim.warmup_steps=0"]  # fmt: skip
# The paper's learning rate. Adam divides a gradient by its own size, so where that is near rounding, rounding
# moves a weight by some hundredth of the learning rate: at the pocket recipe's 4e-4 other micro-batches and
# rows gave up to 6e-6.


def command(out: Path, *sets: str, launcher: str = "torchrun", count: int = 2) -> list[str]:
    """The command line of a run of several processes, as a user would type it."""
    python, *smopd = COMMAND
    share, port = ("--nproc-per-node", str(count)), str(free_port())
    starter = ["-m", "torch.distributed.run", *share, "--master-port", port]
    if launcher == "accelerate":
        # Without --multi_gpu it starts one process on a machine without a GPU, whatever it is told.
        starter = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(count),
                   "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                   "--main_process_port", port]  # fmt: skip
    return [python, *starter, *smopd, "train", "pocket", "--out", str(out), *set_words(sets)]


def launch(out: Path, *sets: str, launcher: str = "torchrun", count: int = 2, **environment: str) -> str:
    argv = command(out, *sets, launcher=launcher, count=count)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=os.environ | environment)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def assert_same(one: Path, other: Path, step: int = 3) -> None:
    """Equal to 1e-6: adapters of student and teacher, moments of the optimizer, and every metric."""
    for name in ("adapter_model", "teacher", "optimizer"):
        a, b = (checkpoint(run, step, name) for run in (one, other))
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=0, atol=1e-6)
    for x, y in zip(metrics(one), metrics(other), strict=True):
        assert x.keys() == y.keys()
        # The gap is rounding and nothing else; what a cache reuses depends on who is in the batch.
        noise = ("rollout/logp_gap", "rollout/logp_gap_max", "rollout/reused")
        x, y = ({k: v for k, v in row.items() if k not in noise} for row in (x, y))
        assert [k for k in x if x[k] is None] == [k for k in y if y[k] is None]
        x, y = ({k: v for k, v in row.items() if v is not None} for row in (x, y))
        assert x == pytest.approx(y, rel=1e-4, abs=1e-6), x["step"]
    for number in range(1, step + 1):
        x, y = (rows(run / "rollouts" / f"step-{number:06d}.jsonl") for run in (one, other))
        assert [r["sharded"] for r in x] == [r["sharded"] for r in y]  # the same tokens, in the same order


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    """The run of one process."""
    return train(tmp_path_factory.mktemp("single") / "run", *SETTINGS)


def test_accumulation_changes_nothing(single, tmp_path):
    assert_same(single, train(tmp_path / "run", *SETTINGS, "train.micro_batch=1", "train.row_tokens=100000"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "count", "more"),
    [("torchrun", 2, ()), ("accelerate", 3, ("train.shard=true", "train.micro_batch=1"))],
    ids=["ddp", "fsdp2, an uneven share"],
)
def test_processes_change_nothing(single, tmp_path, launcher, count, more):
    stdout = launch(tmp_path / "run", *SETTINGS, *more, launcher=launcher, count=count)
    assert stdout.count("trained:") == 1  # one of them speaks
    assert rows(tmp_path / "run" / "starts.jsonl")[0]["processes"] == count
    assert_same(single, tmp_path / "run")


@pytest.mark.slow
def test_conversations_played_ahead_are_shared_as_those_of_a_step_are(tmp_path):
    """Two processes sample a block, one checkpoint in the middle of it holds what both of them sampled."""
    ahead = (*SETTINGS, "rollout.ahead=3", "train.checkpoint_every=1")
    launch(tmp_path / "two", *ahead)
    assert_same(train(tmp_path / "one", *ahead), tmp_path / "two")
    talks = []
    for name in ("one", "two"):
        kept = json.loads((tmp_path / name / "checkpoints/step-000001/ahead.json").read_text())["steps"]
        replies = [
            [turn["reply"] for talk in rollout for turn in talk["turns"]]
            for step in ("2", "3")
            for rollout in kept[step]["rollouts"]
        ]
        talks.append(replies)
    assert talks[0] == talks[1]
    assert len(talks[0]) == 10  # five rollouts of each of two steps


WHOLE_STEP = """
from smopd.methods import Method
from smopd.objective import Plan, Term, answer, batch, entropy, every, hard, middle, top, users_only
from smopd.objective import whole_task
from smopd.rollout.play import Play
from smopd.scoring import gjs, reverse_kl, sampled_nll
from smopd.settings import Section


class Settings(Section):
    samples: int = 3


def centred(group):
    rewards = [float(r.correct) for r in group]
    return [reward - sum(rewards) / len(rewards) for reward in rewards]


def sibling(reply, peers):
    others = peers.siblings(reply)
    assert len(others) == 2
    return whole_task(reply, peers)


def plan(s):
    return Plan(
        (Play(samples=s.samples),),
        (
            Term("pg", every, None, sampled_nll(), lambda t: t.advantage, mean_over="all", per="batch"),
            Term("middle", middle, users_only, gjs(0.5), batch(top(entropy, 0.3)), hard(0.5), per="group"),
            Term("answer", answer, sibling, reverse_kl(), weights="base"),
        ),
        grade=centred,
    )


METHODS = [Method("both", "both", "both", "none", Settings, plan)]
"""


@pytest.mark.long
def test_a_method_that_looks_at_the_whole_step_does_not_depend_on_processes(tmp_path):
    """Groups, siblings, weights over the batch, means over it and over groups, no teacher and a base teacher,
    sharded.
    """
    (tmp_path / "both.py").write_text(WHOLE_STEP)
    more = (f"method={tmp_path / 'both.py'}", "train.steps=2")
    settings = [s for s in SETTINGS if not s.startswith("objective.")]
    train(tmp_path / "one", *settings, *more)
    launch(tmp_path / "two", *settings, *more, "train.shard=true")
    assert_same(tmp_path / "one", tmp_path / "two", 2)


@pytest.mark.long
def test_a_head_of_its_own_is_gathered(tmp_path):
    """An untied head is sharded by itself, and the launcher's word is enough to shard."""
    shutil.copytree(MODEL_DIR, tmp_path / "model")
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(
        model.lm_head.weight + 0.02 * torch.randn_like(model.lm_head.weight)
    )
    model.save_pretrained(tmp_path / "model")
    untied_settings = (f"model.path={tmp_path / 'model'}", "train.steps=2")
    train(tmp_path / "one", *SETTINGS, *untied_settings)
    launch(tmp_path / "two", *SETTINGS, *untied_settings, ACCELERATE_USE_FSDP="true")
    assert_same(tmp_path / "one", tmp_path / "two", 2)


TIED = """
import gc

import torch
from torch.distributed.tensor import DTensor

from smopd.config import load_config
from smopd.models import load_model
from smopd.models.adapters import attach
from smopd.scoring.passes import body_and_head, whole
from smopd.training import sharding
from smopd.training.processes import Processes

processes, config = Processes(), load_config("pocket")
whole_model, model = (attach(load_model(config).model, config.lora, 1) for _ in range(2))
ids = torch.arange(5, 25)[None]


def check(sharded):
    body, weight = body_and_head(model)
    assert weight is model.get_base_model().get_input_embeddings().weight, type(weight)
    assert isinstance(weight, DTensor) == sharded, type(weight)
    assert weight.device == processes.device
    assert torch.equal(whole(weight), expected_weight)


with torch.no_grad():
    expected, (_, expected_weight) = whole_model(input_ids=ids).logits, body_and_head(whole_model)
    sharding.shard(model)
    check(sharded=True)
    assert body_and_head(model)[1].to_local().shape[0] == len(expected_weight) // 2
    assert torch.equal(model(input_ids=ids).logits, expected)
    sharding.reshard(model)
    check(sharded=True)
    with sharding.unsharded(model):
        check(sharded=False)
        assert torch.equal(model(input_ids=ids).logits, expected)
    check(sharded=True)
processes.close()
del model, whole_model  # sharded weights hold the group: alive at the interpreter's end, they abort it
gc.collect()
"""


@pytest.mark.slow
def test_a_tied_head_is_the_embedding_and_split_with_it(tmp_path):
    """No process keeps a whole copy beside its part, and whoever asks for the head gets the embedding."""
    (tmp_path / "tied.py").write_text(TIED)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    ended = subprocess.run(
        [COMMAND[0], *torchrun, tmp_path / "tied.py"], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.slow
def test_python_gives_the_same_on_two_processes(tmp_path):
    """The trainer, `smopd.train` and `smopd.evaluate`, after the script made an Accelerator of its own."""
    one, two = tmp_path / "one", tmp_path / "two"
    alone = python_processes.work(one)
    two.mkdir()
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    torchrun += ["-m", "support.python_processes"]
    paths = os.pathsep.join(
        [str(Path(python_processes.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    env = os.environ | {"PYTHONPATH": paths}
    ended = subprocess.run([COMMAND[0], *torchrun, two], capture_output=True, text=True, timeout=300, env=env)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(alone["refused"]) == 3
    for rank in (0, 1):
        assert json.loads((two / f"process-{rank}.json").read_text()) == json.loads(json.dumps(alone))
    for name in ("trainer", "run"):
        assert read_jsonl(two / name / "starts.jsonl")[0]["processes"] == 2
        assert_same(one / name, two / name, 2)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(single, tmp_path):
    """A step alone, stopped; one or more by two processes, interrupted; the rest alone again."""
    trainer = trainer_of(tmp_path / "run", *SETTINGS)
    take_step(trainer, 1)
    trainer.save()
    argv = command(tmp_path / "run", *SETTINGS)
    process = subprocess.Popen(argv, start_new_session=True, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    file = tmp_path / "run" / "metrics.jsonl"
    while len(read_jsonl(file)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    try:
        os.killpg(process.pid, signal.SIGINT)
        stderr = process.communicate(timeout=120)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    done = len(read_jsonl(file))
    assert 2 <= done <= 3, stderr[-2000:]
    assert (tmp_path / "run" / "checkpoints" / f"step-{done:06d}").exists()
    assert_same(single, train(tmp_path / "run", *SETTINGS))


def test_shares_are_neighbours_and_even():
    for count in (1, 2, 3, 5, 8):
        parts = []
        for rank in range(count):
            processes = Processes()
            processes.rank, processes.world_size = rank, count
            parts.append(processes.share(range(7)))
        assert [i for part in parts for i in part] == list(range(7))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_one_process_asks_nobody():
    processes = Processes()
    gradient = torch.ones(3)
    processes.all_reduce([gradient])
    assert processes.world_size == 1
    assert processes.first
    assert processes.gather([1, 2]) == [1, 2]
    assert processes.broadcast("x") == "x"
    assert processes.any_of(True)
    assert processes.all_max(3) == 3
    assert gradient.tolist() == [1, 1, 1]


def test_several_processes_do_not_share_one_vllm(tmp_path):
    """Inside a process it takes the first GPU, whatever the process's own is."""
    config = load_config("pocket", ["engine.kind=vllm"])
    processes = Processes()
    processes.world_size = 2
    with pytest.raises(UserError, match=r"vllm samples in one process only.*has 2.*vllm-http"):
        Trainer(config, RunFolder(tmp_path / "run", config), processes)
    assert not (tmp_path / "run").exists()
    for kind in ("hf", "vllm-http"):
        refuse_processes(load_config("pocket", [f"engine.kind={kind}"]), 2)
    refuse_processes(config, 1)


def test_a_single_process_does_not_shard(tmp_path):
    assert not trainer_of(tmp_path / "run", *SETTINGS, "train.shard=true").sharded
