"""The pages of `smopd view` as files: what they hold, of what they are made, and no text becomes code."""

import json
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
from support.looked import HOSTILE, index_of, made_run, made_study, unpacked
from support.synthetic_study import study

from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import accuracy
from smopd.evaluation.statistics import paired
from smopd.files import read_jsonl, write_jsonl
from smopd.formatting import visible
from smopd.runs.tokens import read
from smopd.viewer.pages.build import make_view, study_payload
from smopd.viewer.pages.packing import SCALE, SCRIPTS, fixed, json_bytes, read_script
from smopd.viewer.pages.runs import ConversationSource
from smopd.viewer.pages.summary import improved
from smopd.viewer.report import notices


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("look") / "run")


@pytest.fixture(scope="module")
def page(run):
    return make_view([run])


def records(page):
    """Every conversation's JSON and its columns' bytes, in the order of the list."""
    conversations = []
    for file in sorted((page.parent / "data").glob("p*.js")):
        raw = unpacked(file)
        count = struct.unpack_from("<I", raw)[0]
        at = 4 * (count + 1)
        for length in struct.unpack_from(f"<{count}I", raw, 4):
            size = struct.unpack_from("<I", raw, at)[0]
            conversations.append((json.loads(raw[at + 4 : at + 4 + size]), raw[at + 4 + size : at + length]))
            at += length
    return conversations


def test_every_conversation_is_listed_and_stands_in_a_pack(page):
    rows = index_of(page)["rows"]
    assert len(rows["id"]) == 12 * 2 * 2 + 3 * 2 == len(records(page))
    assert {index_of(page)["sources"][s]["kind"] for s in rows["source"]} == {"before", "after", "training"}
    assert len(json.loads(unpacked(page.parent / "data" / "search.js"))) == len(rows["id"])


def test_tokens_are_told_with_their_alternatives_to_a_thousandth(run, page):
    log = read(run / "tokens" / "step-000001.safetensors")
    place = next(k for k, id_ in enumerate(index_of(page)["rows"]["id"]) if id_.startswith("train-1-0"))
    record, columns = records(page)[place]
    assert record["models"] == ["student", "teacher"]
    n = record["columns"][0]
    assert n == 24
    entropy = np.frombuffer(columns, "<u2", n, 2 * n) / SCALE
    np.testing.assert_allclose(entropy, log.values["entropy"].numpy()[:n], atol=0.0006)
    pieces = np.frombuffer(columns, "<u2", n)
    texts = [log.pieces[i] for i in log.values["token"].tolist()[:n]]
    assert [record["pieces"][k] for k in pieces] == texts
    begin = 2 * sum(record["columns"][:10])  # behind the two-byte columns
    counts, flags = (np.frombuffer(columns, np.uint8, n, begin + k * n) for k in (0, 2))
    assert counts.tolist() == log.others["student"].counts.tolist()[:n]
    assert (flags & 1).tolist() == log.values["kept"].tolist()[:n]
    assert (flags >> 1).tolist() == log.values["clipped"].tolist()[:n]
    first = record["turns"][0]
    assert first["parts"][0]["term"] == "middle"
    assert first["teacher"][0]["messages"][0]["content"].startswith("clean 1")
    delta = (log.values["student_logp"] - log.values["teacher_logp"])[:8].abs().mean().item()
    assert first["parts"][0]["delta"] == pytest.approx(delta, rel=1e-5)
    assert first["parts"][0]["weight"] == pytest.approx(0.2)


def test_the_same_folder_gives_the_same_bytes_and_stale_data_go(run, page):
    before = {p.name: p.read_bytes() for p in page.parent.rglob("*") if p.is_file()}
    (page.parent / "data" / "p99999.js").write_text("old")
    make_view([run])
    assert {p.name: p.read_bytes() for p in page.parent.rglob("*") if p.is_file()} == before


def test_what_improved_is_told_with_its_conversations(page):
    (summary,) = index_of(page)["summaries"]
    assert [row["what"] for row in summary["rows"] if not row["only"]] == [
        "Tasks told over several turns", "Tasks told in one turn",
    ]  # fmt: skip
    assert {row["clear"] for row in summary["rows"]} <= {"better", "worse", "perhaps", "unclear"}
    assert len(summary["examples"]) == 3
    assert summary["examples"][0]["why"] == "Gained: wrong before, correct after."
    assert "for 3 steps on" in summary["trained"]


def test_the_steps_told_are_those_of_the_checkpoint_that_was_evaluated(tmp_path):
    run = made_run(tmp_path / "run")
    rows = read_jsonl(run / "evaluated.jsonl")
    write_jsonl(run / "evaluated.jsonl", [row | {"side": row["side"].replace("3", "2")} for row in rows])
    index = index_of(make_view([run]))
    assert "for 2 steps (the run came to step 3) on" in index["summaries"][0]["trained"]
    assert [source["step"] for source in index["sources"]] == [None, 2, None]


def test_conversations_with_a_token_log_show_it_first(tmp_path):
    sides = ([*outcomes("sharded", right), *outcomes("full", 40)] for right in (20, 40))
    source = ConversationSource(0, "after", "s", tmp_path)
    page = improved(RUN, source, *sides, logged={"i30", "i31"})
    assert [example["id"] for example in page["examples"]] == ["i30", "i31", "i0"]


RUN = {"name": "r", "model": "m", "method": "x", "done": 1, "data": "d", "rollouts": 1, "metrics": {}}


def outcomes(view, right, tasks=1, count=40):
    """Conversations, the first so many of them right, in blocks of as many tasks."""
    turn = [{"user": "u", "reply": "r", "stop": "end", "tokens": 1}]
    return [
        Outcome(f"i{k}", view, 0, f"t{k * tasks // count}", 1, turn, k < right, k < right, None, "ok", "", "",
                "", {})
        for k in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("after", "word"), [(10, "worse"), (34, "worse"), (37, "unclear"), (40, "unclear")])
def test_a_whole_view_is_called_by_its_own_interval(tmp_path, after, word):
    source = ConversationSource(0, "before", "s", tmp_path)
    same, full = outcomes("sharded", 20), outcomes("full", 40)
    page = improved(RUN, source, [*same, *full], [*same, *outcomes("full", after)])
    assert [(row["view"], row["clear"]) for row in page["rows"]] == [("sharded", "unclear"), ("full", word)]
    assert page["parts"] == 0
    row = page["rows"][1]
    plain = paired([True] * 40, [k < after for k in range(40)])
    assert (row["low"], row["high"]) == (plain.low, plain.high)


def test_the_words_of_every_row_are_those_of_its_interval(tmp_path):
    """Twelve tasks of ten: half of them are lost, which is clear as a whole whatever its parts are."""
    source = ConversationSource(0, "before", "s", tmp_path)
    old, new = (outcomes("sharded", right, 12, 120) for right in (114, 54))
    new = [replace(o, correct=True) if o.task == "t5" else o for o in new]
    page = improved(RUN, source, old, new)
    whole, *parts = page["rows"]
    assert page["parts"] == len(parts) == 12
    assert whole["clear"] == "worse"
    assert whole["high"] < 0
    assert {row["clear"] for row in parts} == {"worse", "perhaps", "unclear"}
    for row in page["rows"]:
        holds = row["low"] <= 0 <= row["high"]
        assert holds == (row["clear"] in ("unclear", "perhaps"))


def test_what_lets_the_numbers_say_less_is_said(tmp_path):
    lines = [notices(full, "a:train", "a:eval") for full in (None, 0.5, 0.02)]
    assert lines[:2] == [[], []]
    assert lines[2] == [
        "FULL is 2.0% before training: nothing to distil, the model does not solve the whole task either."
    ]
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("another" if name == "c" else "the same")
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert "same examples" in notices(1.0, a, a)[0]
    assert "same examples" in notices(1.0, a, b)[0]
    assert "same examples" in notices(1.0, "pocket:eval", "pocket:eval")[0]
    assert notices(1.0, a, c) == []
    source = ConversationSource(0, "before", "s", tmp_path)
    page = improved(RUN, source, outcomes("full", 1), outcomes("full", 1))
    assert page["notices"] == [lines[2][0].replace("2.0%", "2.5%")]


def test_nothing_said_gets_into_page_or_script(tmp_path):
    page = make_view([made_run(tmp_path / "run", items=2, steps=1, text=HOSTILE)])
    for file in [page, *page.parent.glob("*.js"), *page.parent.glob("data/*.js")]:
        assert "onerror=" not in file.read_text(), file
        assert "window.hit" not in file.read_text(), file
    for file in page.parent.glob("data/*.js"):
        assert re.fullmatch(r'smopdData\("\w+","[A-Za-z0-9+/=]+"\);\n', file.read_text())
    assert visible(HOSTILE) in index_of(page)["rows"]["id"][0]
    assert "http" not in page.read_text().replace("http-equiv", "")


def test_commands_on_the_pages_are_those_of_the_command_line(smopd):
    mentioned = re.findall(r"smopd ([a-z]+)([^;,.\"]*)", read_script(SCRIPTS))
    assert {"eval", "view"} <= {verb for verb, _ in mentioned}
    for verb, rest in mentioned:
        code, shown, _ = smopd(verb, "--help")
        assert code == 0, verb
        assert [word for word in rest.split() if word.startswith("--") and word not in shown] == [], verb


def test_hidden_characters_are_shown():
    assert json.loads(json_bytes({"a\u202e": ["\u2028x\x1b", float("nan")]})) == {
        "a\ufffd": ["\ufffdx\ufffd", None]
    }


def test_numbers_that_are_none_do_not_break_a_page():
    assert fixed(np.array([np.nan, np.inf, -1.0, 100.0, 0.5])).tolist() == [65535, 65535, 0, 65535, 512]


def test_several_runs_lie_over_each_other(run, tmp_path):
    other = made_run(tmp_path / "other", items=3, steps=2, seed=1)
    index = index_of(make_view([run, other], tmp_path / "pages"))
    assert [r["name"] for r in index["runs"]] == ["run", "other"]
    assert index["runs"][1]["settings"]["seed"] == 1
    assert len({s["key"] for s in index["sources"]}) == 6
    summary = json.loads((other / "eval" / "trained" / "summary.json").read_text())["views"]["sharded"]
    assert index["sources"][4]["views"]["sharded"] == [summary[key] for key in ("accuracy", "low", "high")]
    folder = index_of(make_view([tmp_path], tmp_path / "pages"))
    assert [r["name"] for r in folder["runs"]] == ["other"]


def test_an_evaluation_alone_can_be_looked_at(run, tmp_path):
    index = index_of(make_view([run / "eval" / "base", run / "eval" / "trained"], tmp_path / "pages"))
    assert len(index["rows"]["id"]) == 48
    assert len(index["summaries"]) == 1


def test_a_study_tells_verdict_arms_seeds_and_flips(tmp_path):
    results = study({"baseline": 0.4, "entropy": 0.8}, items=40)
    page = study_payload(results, tmp_path, {})
    assert page["verdicts"][0].startswith("SHARDED, gain over baseline")
    sharded = page["views"][0]
    entropy = next(arm for arm in sharded["arms"] if arm["arm"] == "entropy")
    assert len(entropy["seeds"]) == 5
    assert entropy["low"] < entropy["mean"] < entropy["high"]
    assert entropy["verdict"] == "gain"
    assert all(abs(flip["to"] - flip["from"]) >= 0.5 for flip in entropy["flips"])
    assert sharded["arms"][0]["arm"] == "untrained pocket"


def test_a_studys_accuracies_have_the_intervals_of_an_evaluation(tmp_path):
    results = study({"baseline": 0.4}, seeds=[1], views=["sharded"], items=12)
    (cell,) = results.cells
    for right in ("1" * 12, "111" + "0" * 9):
        one = replace(results, cells=[replace(cell, right={"sharded": right})])
        arm = study_payload(one, tmp_path, {})["views"][0]["arms"][1]
        evaluated = accuracy({str(k): [digit == "1"] for k, digit in enumerate(right)})
        assert (arm["low"], arm["high"]) == (evaluated["low"], evaluated["high"])
    assert (round(arm["low"], 3), round(arm["high"], 3)) == (0.089, 0.532)


def test_a_study_on_disk_leads_down_to_its_conversations(tmp_path):
    index = index_of(make_view([made_study(tmp_path)]))
    assert len(index["runs"]) == 5
    assert len(index["rows"]["id"]) == 5 * 10 * 2
    (page,) = index["studies"]
    sharded = page["views"][0]
    assert [arm["arm"] for arm in sharded["arms"]] == ["untrained pocket", "baseline", "entropy"]
    for arm in sharded["arms"]:
        for seed in arm["seeds"]:
            of_run = [s for s in index["sources"] if s["run"] == seed["run"]]
            assert [s["kind"] for s in of_run] == ["before" if seed["seed"] is None else "after"]
    assert sharded["arms"][2]["flips"][0]["to"] > sharded["arms"][2]["flips"][0]["from"]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        make_view([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config\.toml"):
        make_view([tmp_path / "empty"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="nothing was written"):
        make_view([made_run(tmp_path / "run", items=1, steps=1)], tmp_path / "mine")


def test_the_command_says_where_the_pages_are(smopd, run):
    code, out, _ = smopd("view", str(run), "--json")
    assert code == 0
    assert json.loads(out) == {"view": str(run / "view" / "index.html")}
    code, _, err = smopd("view", "nowhere")
    assert code == 2
    assert "nowhere" in err
