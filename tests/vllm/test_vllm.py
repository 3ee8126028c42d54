"""Both vLLM engines against transformers, with real vLLM on the CPU: tokens, log-probabilities, swaps, a
server killed at work.

Every comparison is with a forward pass of transformers and PEFT in float32, of the adapter that should have
sampled: an engine that stayed with an older one fails it, which `test_an_old_name_or_number_would_be_noticed`
shows.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.contexts import full_context
from support.played import move_student, reply_logp
from support.vllm_servers import ENGINE_GROUP, ENVIRONMENT, LiveServer, require_vllm

from smopd.config import load_config
from smopd.data import load_examples
from smopd.errors import EngineLost, UserError
from smopd.models import load_model
from smopd.models.adapter_files import WEIGHTS
from smopd.models.adapters import StudentAdapter, attach, student_parameters
from smopd.rollout.engine import ReplyRequest, Sampling, Session, Stop
from smopd.rollout.vllm_http import VLLMServers
from smopd.rollout.vllm_local import VLLMEngine
from smopd.seeds import derive
from smopd.settings import LoraSettings

pytestmark = [pytest.mark.vllm, ENGINE_GROUP]
require_vllm()

RANK, LENGTH = 8, 512
GREEDY = Sampling(0.0, 24)
CONFIG = load_config(
    "pocket", [f"lora.r={RANK}", f"engine.max_length={LENGTH}", "engine.memory=0.1", "engine.retries=2"]
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Two servers, starting while the tests of the other engine run."""
    folder = tmp_path_factory.mktemp("servers")
    started = [LiveServer(folder / f"server{i}.log", RANK, LENGTH) for i in range(2)]
    yield started
    for server in started:
        server.kill()


@pytest.fixture(scope="module", params=["local", "http"])
def engine(request, servers, tmp_path_factory):
    """Either engine. The tests of one run in the order of this file: the first one finds it without an
    adapter.
    """
    if request.param == "local":
        torch._dynamo.config.disable = True
        with pytest.MonkeyPatch.context() as patch:
            for name, value in ENVIRONMENT.items():
                patch.setenv(name, value)
            new_engine = VLLMEngine(CONFIG, CHAT.renderer.end_ids, CHAT.renderer.vocabulary, RANK)
            yield new_engine
            new_engine.close()
    else:
        new_engine = connect(servers, tmp_path_factory.mktemp("run"))
        yield new_engine
        new_engine.close()


def connect(servers, folder: Path, **settings) -> VLLMServers:
    for server in servers:
        server.wait()
    named = CONFIG.engine.model_copy(
        update={"kind": "vllm-http", "servers": [s.url for s in servers], **settings}
    )
    config = CONFIG.model_copy(update={"engine": named})
    renderer = CHAT.renderer
    ends, size = renderer.end_ids, renderer.vocabulary
    return VLLMServers(config, ends, size, folder, renderer.encode, RANK, pause=0.2)


CHAT = load_model(CONFIG)
PROMPTS = [full_context(CHAT.renderer, example) for example in load_examples("pocket:eval:12")]
LONG = (PROMPTS[0] * 20)[:400]  # more than one block of vLLM's cache


class Reference:
    """A PEFT adapter with random A and B, and what transformers computes with it; or the base."""

    def __init__(self, seed: int | None, rank: int = RANK) -> None:
        self.model = load_model(CONFIG).model
        if seed is not None:
            targets = list(CONFIG.lora.targets)
            lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type="CAUSAL_LM")
            torch.manual_seed(seed)
            self.model = get_peft_model(self.model, lora)
            for name, parameter in self.model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.2)
        self.model.eval()

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(str(folder), save_embedding_layers=False)

    @torch.no_grad()
    def score(self, prompt, reply) -> tuple[list[float], list[int]]:
        """The log-probability of every token of a reply, and the likeliest token in its place."""
        logp = reply_logp(self.model, prompt, reply.ids)
        return logp.gather(1, torch.tensor(reply.ids)[:, None])[:, 0].tolist(), logp.argmax(-1).tolist()

    def gap(self, prompts, replies) -> float:
        """The largest difference to the log-probabilities that the engine gave."""
        scored = [self.score(prompt, reply)[0] for prompt, reply in zip(prompts, replies, strict=True)]
        return max(
            abs(a - b)
            for reference_logps, reply in zip(scored, replies, strict=True)
            for a, b in zip(reference_logps, reply.logps, strict=True)
        )

    def sampled_these(self, prompts, replies, greedy: bool = True) -> None:
        """Fails unless this model said them."""
        assert self.gap(prompts, replies) < 1e-3
        if greedy:
            for prompt, reply in zip(prompts, replies, strict=True):
                assert list(reply.ids) == self.score(prompt, reply)[1]


@pytest.fixture(scope="module")
def first() -> Reference:
    return Reference(1)


@pytest.fixture(scope="module")
def second() -> Reference:
    return Reference(2)


def test_without_an_adapter_the_base_samples(engine):
    base = Reference(None)
    replies = engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
    base.sampled_these(PROMPTS, replies)
    ends = set(CHAT.renderer.end_ids)
    assert {reply.stop for reply in replies} == {Stop.END, Stop.LENGTH}
    for reply in replies:
        assert (reply.stop == Stop.END) == (reply.ids[-1] in ends)
        assert not ends & set(reply.ids[:-1])
        assert reply.stop == Stop.END or len(reply.ids) == GREEDY.max_tokens


def test_log_probabilities_are_of_the_model_not_of_the_sampler(engine):
    """At temperature 1, over the whole vocabulary, whatever the draw was confined to."""
    narrow = Sampling(0.6, 24, top_p=0.8, top_k=5)
    replies = engine.generate(PROMPTS, [derive("narrow", i) for i in range(len(PROMPTS))], narrow)
    Reference(None).sampled_these(PROMPTS, replies, greedy=False)


def test_top_k_and_seed_reach_the_sampler(engine):
    hot = Sampling(2.0, 16)
    seeds = [derive("hot", i) for i in range(len(PROMPTS))]
    one, again = (engine.generate(PROMPTS, seeds, hot) for _ in range(2))
    other = engine.generate(PROMPTS, [seed + 1 for seed in seeds], hot)
    assert one == again
    assert one != other
    alone = [engine.generate([p], [s], hot)[0] for p, s in zip(PROMPTS[:4], seeds[:4], strict=True)]
    assert alone == one[:4]
    confined = engine.generate(PROMPTS, seeds, replace(hot, top_k=1))
    assert [r.ids for r in confined] == [r.ids for r in engine.generate(PROMPTS, seeds, Sampling(0.0, 16))]


def test_after_a_refresh_the_new_adapter_samples(engine, first, second, tmp_path):
    first.save(tmp_path / "first")
    engine.refresh(1, lambda folder: shutil.copytree(tmp_path / "first", folder, dirs_exist_ok=True))
    before = engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
    first.sampled_these(PROMPTS, before)
    assert second.gap(PROMPTS, before) > 0.5  # what the next lines would see of a stale adapter
    engine.refresh(2, second.save)
    after = engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
    second.sampled_these(PROMPTS, after)
    assert first.gap(PROMPTS, after) > 0.5
    assert all(old.ids != new.ids for old, new in zip(before, after, strict=True))


def test_a_student_is_handed_over_as_it_is_trained(engine):
    """As the training loop does it: in process through memory, else as a file."""
    trained = Reference(None)
    trained.model = attach(trained.model, LoraSettings(r=RANK, alpha=2 * RANK), 1)
    adapter, before = StudentAdapter(trained.model), None
    for version in (11, 12):
        move_student(trained.model, 0.05, seed=version)
        snapshot = {name: p.detach().clone() for name, p in student_parameters(trained.model).items()}
        if before:
            assert trained.gap(PROMPTS, before) > 0.1  # what a stale adapter would look like
        engine.refresh(version, adapter)
        before = engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
        trained.sampled_these(PROMPTS, before)
        for name, p in student_parameters(trained.model).items():
            assert torch.equal(p, snapshot[name])  # vLLM scales the tensors that it is given
        through_memory = not (engine._adapter / WEIGHTS).exists()
        assert through_memory == isinstance(engine, VLLMEngine)


def test_a_cached_prefix_does_not_outlive_its_adapter(engine, first, second):
    session = [Session("long")]

    def ask() -> tuple[list, int]:
        before = engine.usage.reused
        return engine.generate([LONG], [0], GREEDY, session), engine.usage.reused - before

    engine.refresh(3, first.save)
    replies, reused = ask()
    assert reused == 0
    first.sampled_these([LONG], replies)
    replies, reused = ask()
    assert reused >= 256  # the cache is at work
    first.sampled_these([LONG], replies)
    engine.refresh(4, second.save)
    replies, reused = ask()
    assert reused == 0
    second.sampled_these([LONG], replies)


def test_an_old_name_or_number_would_be_noticed(engine, first, second, monkeypatch):
    """vLLM keeps the weights it knows by a name (server) or a number (in process): the comparison of these
    tests sees it.
    """
    engine.refresh(5, first.save)
    with monkeypatch.context() as patch:
        if isinstance(engine, VLLMEngine):
            engine._swaps -= 1
            patch.setattr(engine._llm.llm_engine, "remove_lora", lambda number: None)
        else:
            known, write = engine._store.root / "again" / engine._adapter.name, engine._store.write
            known.parent.mkdir()
            patch.setattr(engine._store, "write", lambda version, save: write(version, save).rename(known))
            for server in engine._pool.servers:
                server.loaded.clear()
        engine.refresh(6, second.save)
        replies = engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
        assert first.gap(PROMPTS, replies) < 1e-3
        with pytest.raises(AssertionError):
            second.sampled_these(PROMPTS, replies)
    engine.refresh(7, second.save)
    second.sampled_these(PROMPTS, engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY))


def test_refusals_are_told_and_leave_the_engine_usable(engine, second):
    with pytest.raises(UserError, match="maximum context length is 512"):
        engine.generate([PROMPTS[0], [5] * 600], [0, 0], GREEDY)
    with pytest.raises(UserError, match=r"temperature must be in \[0, 2\]"):
        engine.generate(PROMPTS[:2], [0, 0], Sampling(3.0, 8))
    with pytest.raises(UserError, match=r"rank 16 is greater than max_lora_rank 8"):
        engine.refresh(8, Reference(3, rank=16).save)
    engine.refresh(9, second.save)
    second.sampled_these(PROMPTS, engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY))


# The other's requests are connections that end with the call.
@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_ctrl_c_leaves_nothing_behind(engine, second, monkeypatch):
    """The replies of an interrupted call must not come back as those of the next."""
    step, steps = engine._llm.llm_engine.step, []

    def interrupted():
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step()

    with monkeypatch.context() as patch:
        patch.setattr(engine._llm.llm_engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(PROMPTS, [0] * len(PROMPTS), GREEDY)
    replies = engine.generate(PROMPTS[:5], [0] * 5, GREEDY)
    second.sampled_these(PROMPTS[:5], replies)


def test_in_process_it_keeps_off_standard_output_and_random_states(tmp_path):
    """In a process of its own, where an engine follows another, as an evaluation follows a training."""
    script = """
import json, os, random, sys
import numpy, torch
from smopd.config import load_config
from smopd.rollout.engine import Sampling
from smopd.rollout.vllm_local import VLLMEngine

def state():
    return [str(random.getstate()), str(numpy.random.get_state()), torch.get_rng_state().tolist(),
            torch.get_num_threads(), torch.set_num_threads is setter, os.environ.get("LD_PRELOAD")]

setter, before, said = torch.set_num_threads, None, []
before = state()
config = load_config("pocket", ["engine.max_length=256", "engine.memory=0.1"])
for rank in (0, 16):
    engine = VLLMEngine(config, [1], 10**6, rank)
    said.append([list(reply.ids) for reply in engine.generate([[5, 6, 7]] * 2, [3, 4], Sampling(1.0, 8))])
    engine.close()
print(json.dumps({"kept": state() == before, "said": said, "temporary": os.listdir(os.environ["TMPDIR"])}))
"""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | ENVIRONMENT | {"TMPDIR": str(temporary)}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    output = json.loads(ran.stdout)  # and nothing else
    assert output["kept"]
    assert output["said"][0] == output["said"][1]
    assert not [name for name in output["temporary"] if name.startswith("smopd")]


def test_a_server_killed_at_work_loses_nothing_and_the_last_one_loses_the_engine(servers, first, tmp_path):
    engine = connect(servers, tmp_path / "run", concurrency=8)
    engine.refresh(1, first.save)
    prompts = [[*PROMPTS[i % len(PROMPTS)], 5 + i] for i in range(40)]
    long = Sampling(1.0, 160, top_k=100)

    def play():
        # No token of the run ends a reply, so that every one takes its time.
        engine._replies.end_ids = frozenset([0])
        return engine.generate(prompts, [derive("kill", i) for i in range(len(prompts))], long)

    def kill_at_work(server):
        while not next(s for s in engine._pool.servers if s.url == server.url).in_flight:
            time.sleep(0.01)
        time.sleep(0.5)
        server.kill()

    killer = threading.Thread(target=kill_at_work, args=(servers[0],))
    killer.start()
    replies = play()
    killer.join()
    assert [s.url for s in engine._pool.usable] == [servers[1].url]
    assert len(replies) == len(prompts)
    first.sampled_these(prompts, replies, greedy=False)

    killer = threading.Thread(target=kill_at_work, args=(servers[1],))
    killer.start()
    began = time.monotonic()
    with pytest.raises(EngineLost, match="the same command continues it") as lost:
        play()
    killer.join()
    assert time.monotonic() - began < 60
    assert all(server.url in str(lost.value) for server in servers)
    engine.close()
    assert not (tmp_path / "run" / "served").exists()


def test_conversations_go_on_without_waiting(engine, second):
    """Dialogues get the replies that one call after the other gives, each within its own limit."""
    engine.refresh(10, second.save)
    limits, replies = [3, 6, 2], {}

    def dialogue(number):
        for turn in range(number % 2 + 1):
            prompt, seed = PROMPTS[number], 100 * number + turn
            replies[number, turn] = yield ReplyRequest(prompt, seed, limits[turn], Session(str(number)))

    numbers = range(min(4, len(PROMPTS)))
    engine.converse([dialogue(number) for number in numbers], GREEDY)
    assert len(replies) == sum(number % 2 + 1 for number in numbers)
    for (number, turn), reply in replies.items():
        limited = replace(GREEDY, max_tokens=limits[turn])
        (alone,) = engine.generate([PROMPTS[number]], [100 * number + turn], limited)
        assert reply.ids == alone.ids
        assert len(reply.ids) <= limits[turn]
