"""The multi-turn driver: whose words stand where, token limits, independence of the batch."""

from support.contexts import full_context

from smopd.chat import DirtyContext
from smopd.data import load_examples
from smopd.rollout import Driver, Sampled, Sampling, Stop
from smopd.rollout.hf import HFEngine


class Echo:
    """Answers every prompt with a fixed reply as long as it may be, and remembers what it was asked."""

    def __init__(self, ids):
        self.ids, self.calls = ids, []

    def generate(self, prompts, seeds, sampling, sessions=None):
        self.calls.append((list(prompts), list(seeds), sampling))
        return [Sampled(tuple(self.ids[: sampling.max_tokens]), Stop.LENGTH) for _ in prompts]


def test_contexts_are_the_dirty_ones_and_limits_differ_by_turn(pocket):
    examples = load_examples("pocket:eval:6")
    ids = pocket.renderer.encode("so 4 + 5 = 9. The answer is 9.")
    echo = Echo(ids)
    conversations = Driver(echo, pocket.renderer, Sampling(1.0, 7), middle_tokens=3).play(
        examples, "sharded", (1, "t")
    )
    for example, conversation in zip(examples, conversations, strict=True):
        assert [len(t.reply) for t in conversation.turns] == [3] * (len(example.shards) - 1) + [7]
        expected = DirtyContext(pocket.renderer, example)
        for shard, turn in zip(example.shards, conversation.turns, strict=True):
            assert list(turn.context) == expected.ask(shard)
            expected.answer(turn.reply)
    seeds = [seed for _, seeds, _ in echo.calls for seed in seeds]
    assert len(set(seeds)) == len(seeds) == sum(len(e.shards) for e in examples)


def test_full_is_one_turn_on_the_complete_task(pocket):
    examples = load_examples("pocket:eval:3")
    echo = Echo(pocket.renderer.encode("so 4"))
    for example, conversation in zip(
        examples, Driver(echo, pocket.renderer, Sampling(0, 9), 2).play(examples, "full", (1,)), strict=True
    ):
        assert [list(t.context) for t in conversation.turns] == [full_context(pocket.renderer, example)]


def test_a_conversation_does_not_depend_on_its_company(pocket):
    examples = load_examples("pocket:eval:8")
    driver = Driver(
        HFEngine(pocket.model, pocket.renderer.end_ids, 8), pocket.renderer, Sampling(1.0, 40, 0.95, 20), 40
    )
    together = driver.play(examples, "sharded", (7, "step", 3))
    alone = [driver.play([e], "sharded", (7, "step", 3))[0] for e in examples[:3]]
    assert [c.turns for c in together[:3]] == [c.turns for c in alone]
    assert driver.play(examples[:1], "sharded", (7, "step", 4))[0].turns != alone[0].turns


def test_conversations_are_written_with_user_words_and_stop_reasons(pocket):
    example = load_examples("pocket:eval:1")[0]
    echo = Echo(pocket.renderer.encode("so 4"))
    row = Driver(echo, pocket.renderer, Sampling(0, 5), 5).play([example], "sharded", (1,))[0].to_json()
    assert [t["user"] for t in row["turns"]] == list(example.shards)
    assert {t["reply"] for t in row["turns"]} == {"so 4"}
    assert {t["stop"] for t in row["turns"]} == {"length"}


def test_a_recited_reply_stands_behind_the_whole_task_with_its_end_token(pocket):
    examples = load_examples("pocket:eval:2")
    driver = Driver(Echo([]), pocket.renderer, Sampling(0, 5), 5)
    for example, text in zip(examples, ["so 4", "so 5 + 1"], strict=True):
        conversation = driver.recite(example, text)
        (turn,) = conversation.turns
        assert (conversation.view, conversation.asked, turn.text) == ("full", [example.full], text)
        assert list(turn.context) == full_context(pocket.renderer, example)
        assert turn.reply == (*pocket.renderer.encode(text), pocket.renderer.end_of_turn)
