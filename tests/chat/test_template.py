"""Rendering through real chat templates: Qwen3's own, and those of other families as trl ships them."""

import copy
from functools import cache

import pytest
from support.contexts import clean_context, full_context, users_context
from support.families import trl_template

from smopd.chat import DirtyContext, Renderer
from smopd.data import Example
from smopd.errors import UserError

EXAMPLE = Example(
    "e1",
    "math",
    "Be brief.",
    ("What is the sum?", "The first is 4.", "The second is 5."),
    "Add 4 and 5.",
    {"value": "9"},
)
BARE = Example("e2", "math", "", EXAMPLE.shards, EXAMPLE.full, EXAMPLE.answer)


@cache
def _copy(tokenizer):
    """One copy for the whole file: copying a tokenizer of 150,000 entries takes a second."""
    return copy.deepcopy(tokenizer)


def with_template(tokenizer, name: str):
    """The Qwen3 tokenizer with another family's template: the text is that family's, the ids are Qwen3's."""
    other = _copy(tokenizer)
    other.chat_template = trl_template(name)
    other.bos_token = "<|endoftext|>"
    return other


def text(renderer: Renderer, ids: list[int]) -> str:
    return renderer.tokenizer.decode(ids)


FAMILIES = ["qwen3", "qwen2_5", "llama3", "llama3_1", "gemma", "gemma3", "phi3", "cohere", "deepseekv3",
            "lfm2", "glm4moe"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gets_every_user_turn_once_in_order_and_no_reply_in_the_clean_context(qwen3, family):
    renderer = Renderer(with_template(qwen3, family))
    for turn in range(2):
        shown = text(renderer, users_context(renderer, EXAMPLE, turn))
        places = [shown.index(word) for word in ("Be brief.", *EXAMPLE.shards[: turn + 1])]
        assert places == sorted(places)
        assert all(shown.count(shard) == 1 for shard in EXAMPLE.shards[: turn + 1])
        assert EXAMPLE.shards[turn + 1] not in shown
        assert EXAMPLE.full not in shown
    answer = text(renderer, clean_context(renderer, EXAMPLE, 2))
    assert answer == text(renderer, full_context(renderer, EXAMPLE))
    assert EXAMPLE.full in answer
    assert "first is 4" not in answer


@pytest.mark.parametrize("family", FAMILIES)
def test_the_dirty_context_holds_the_replies_between_the_shards(qwen3, family):
    renderer = Renderer(with_template(qwen3, family))
    dirty = DirtyContext(renderer, EXAMPLE)
    dirty.ask(EXAMPLE.shards[0])
    dirty.answer([*renderer.encode("Perhaps seven."), renderer.end_ids[0]])
    dirty.ask(EXAMPLE.shards[1])
    dirty.answer(renderer.encode("Then eleven."))  # cut at the limit: no end token
    shown = text(renderer, dirty.ask(EXAMPLE.shards[2]))
    messages = ["What is the sum?", "Perhaps seven.", "The first is 4.", "Then eleven.", "The second is 5."]
    assert [shown.count(s) for s in messages] == [1] * 5
    assert sorted(messages, key=shown.index) == messages


def test_which_templates_merge_user_turns_and_fold_the_system_prompt(qwen3, caplog):
    traits = {}
    for family in ("qwen3", "qwen2_5", "gemma", "gemma3", "cohere", "llama3"):
        renderer = Renderer(with_template(qwen3, family))
        traits[family] = (renderer.merges_users, renderer.folds_system)
    assert traits == {
        "qwen3": (False, False), "qwen2_5": (False, False), "gemma": (True, True), "gemma3": (True, False),
        "cohere": (True, False), "llama3": (False, False),
    }  # fmt: skip
    assert sum("merged into one" in r.message for r in caplog.records) == 3  # said once a template


def test_merged_turns_are_separated_by_a_blank_line(qwen3):
    renderer = Renderer(with_template(qwen3, "gemma"))
    shown = text(renderer, users_context(renderer, EXAMPLE, 1))
    assert "Be brief.\n\nWhat is the sum?\n\nThe first is 4." in shown


def test_a_default_system_prompt_is_in_dirty_and_clean_context_alike(qwen3):
    renderer = Renderer(with_template(qwen3, "qwen2_5"))
    default = "You are Qwen"
    clean = text(renderer, users_context(renderer, BARE, 0))
    dirty = text(renderer, DirtyContext(renderer, BARE).ask(BARE.shards[0]))
    assert clean == dirty
    assert clean.count(default) == 1
    assert default not in text(renderer, users_context(renderer, EXAMPLE, 0))


@pytest.mark.parametrize("thinking", [False, True])
def test_the_first_turn_is_the_same_dirty_and_clean(qwen3, thinking):
    renderer = Renderer(qwen3, thinking)
    assert DirtyContext(renderer, EXAMPLE).ask(EXAMPLE.shards[0]) == users_context(renderer, EXAMPLE, 0)


def test_qwen3_adds_an_empty_think_block_to_the_prompt_and_strips_it_from_history(qwen3):
    renderer = Renderer(qwen3, thinking=False)
    dirty = DirtyContext(renderer, EXAMPLE)
    first = dirty.ask(EXAMPLE.shards[0])
    assert text(renderer, first).endswith("<think>\n\n</think>\n\n")  # part of the context, not of the reply
    dirty.answer([*renderer.encode("Seven."), *renderer.end_ids])
    second = dirty.ask(EXAMPLE.shards[1])
    assert text(renderer, second).count("<think>") == 1  # only in front of the reply to come
    assert second[: len(first)] != first  # so no prefix may be taken for granted


def test_qwen3_thinking_is_stripped_from_history_but_kept_verbatim_on_request(qwen3):
    renderer = Renderer(qwen3, thinking=True)
    reply = [*renderer.encode("<think>\nhm\n</think>\n\nSeven."), *renderer.end_ids]
    shown = {}
    for history in ("template", "verbatim"):
        dirty = DirtyContext(renderer, EXAMPLE, history)
        first = dirty.ask(EXAMPLE.shards[0])
        dirty.answer(reply)
        shown[history] = dirty.ask(EXAMPLE.shards[1])
        if history == "verbatim":
            assert shown[history][: len(first) + len(reply)] == first + reply  # ids in, ids out
    assert "hm" not in text(renderer, shown["template"])
    assert "hm" in text(renderer, shown["verbatim"])


@pytest.mark.parametrize("family", ["qwen3", "llama3", "gemma", "phi3"])
def test_verbatim_history_closes_a_reply_exactly_once(qwen3, family):
    renderer = Renderer(with_template(qwen3, family))
    body = renderer.encode("Seven.")
    contexts = []
    for reply in (body, [*body, renderer.end_ids[0]]):  # cut at the limit, and ended
        dirty = DirtyContext(renderer, EXAMPLE, "verbatim")
        dirty.ask(EXAMPLE.shards[0])
        dirty.answer(reply)
        contexts.append(dirty.ask(EXAMPLE.shards[1]))
    assert contexts[0] == contexts[1]
    assert "The first is 4." in text(renderer, contexts[0])


def test_verbatim_refuses_a_template_that_changes_replies(qwen3):
    other = _copy(qwen3)
    other.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}\n{% endif %}{% endfor %}A:"
    )
    dirty = DirtyContext(Renderer(other), EXAMPLE, "verbatim")
    dirty.ask(EXAMPLE.shards[0])
    dirty.answer([1, 2])
    with pytest.raises(UserError, match=r"chat\.history"):
        dirty.ask(EXAMPLE.shards[1])


def test_a_tokenizer_without_a_template_is_refused(qwen3):
    other = _copy(qwen3)
    other.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        Renderer(other)


def test_decoding_leaves_out_the_end_token_and_nothing_else(qwen3):
    renderer = Renderer(qwen3)
    reply = " It is 3 , or 4 .\n"
    assert renderer.decode([*renderer.encode(reply), *renderer.end_ids]) == reply
