"""`smopd.Run`, `smopd.evaluate`: what is read of a run and of its evaluations."""

import builtins

import pytest
from support.apples import EXAMPLES, last_number
from support.runs import complaint, metrics
from support.runs import rows as json_lines

import smopd
from smopd.frames import table


@pytest.fixture(scope="module")
def evaluated(apples):
    """The run's evaluation and its base's, on the same two examples."""
    how = {"progress": False}
    return smopd.evaluate(apples, EXAMPLES[:2], **how), smopd.evaluate(apples, EXAMPLES[:2], base=True, **how)


def test_metrics_are_a_row_a_step_with_its_seconds(apples):
    pytest.importorskip("pandas")
    frame = apples.metrics
    assert list(frame["step"]) == [1, 2]
    assert list(frame["loss"]) == [row["loss"] for row in metrics(apples.path)]
    assert (frame["seconds/step"] > 0).all()


def test_without_pandas_tables_are_lists_of_dicts(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert table([{"a": 1}]) == [{"a": 1}]


def test_tokens_name_their_rollout_and_their_term(apples):
    frame = apples.tokens(1)
    assert set(frame["term"]) <= {"middle", "answer", "full"}
    assert set(frame["id"]) <= {"1", "2", "3", "4"}
    assert frame["kept"].dtype == bool
    assert "settings={'train.save_tokens': True}" in complaint(9, call=apples.tokens)


def test_conversations_of_training_are_chat_messages(apples):
    frame = apples.conversations(view="sharded")
    assert list(frame["step"]) == [1, 1, 2, 2]
    first = frame.iloc[0]
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"] * 3
    assert first["messages"][1]["content"] == first["turns"][0]["reply"]
    assert len(apples.conversations(step=2, view="sharded")) == 2
    assert "has no conversations of step 9" in complaint(9, call=apples.conversations)


def test_an_evaluation_is_its_views(apples, evaluated):
    trained, base = evaluated
    assert set(trained) == set(base) == {"full", "sharded"}
    assert trained["sharded"]["total"] == 2
    assert trained.path.parent == apples.path / "eval"
    assert trained.summary["views"] == dict(trained)
    assert (trained.side, base.side) == ("step-000002", "base")
    finished = [e.path for e in apples.evaluations]  # other tests evaluate this run too
    assert finished.index(trained.path) < finished.index(base.path)
    frame = trained.conversations("full")
    assert frame.iloc[0]["messages"][0] == {"role": "user", "content": EXAMPLES[0]["full"]}
    assert "SHARDED" in repr(trained)
    assert "<table>" in trained._repr_html_()
    # The same call only reads it.
    written = (trained.path / "summary.json").stat().st_mtime_ns
    assert apples.evaluate(EXAMPLES[:2], progress=False).path == trained.path
    assert (trained.path / "summary.json").stat().st_mtime_ns == written


def test_comparisons_are_paired_on_the_same_examples(apples, evaluated):
    change = apples.compare("base")
    sides = {str(e.path): e for e in apples.evaluations}  # other tests evaluate this run too
    after, before = sides[change["b"]], sides[change["a"]]
    assert (after.side, before.side) == ("step-000002", "base")
    assert change == after.compare(before)
    change = evaluated[0].compare(evaluated[1])
    assert (change["a"], change["b"]) == (str(evaluated[1].path), str(evaluated[0].path))
    assert change["views"]["full"]["change"]["n"] == 2


def test_a_run_says_what_it_is(apples, evaluated):
    assert apples.summary["steps"] == 2
    assert str(apples.path) in repr(apples)
    assert "2 of 2" in repr(apples)
    assert f"<td>{apples.path}</td>" in apples._repr_html_()
    assert smopd.Run(str(apples.path)).adapter.name == "step-000002"
    assert "not a run folder" in complaint(apples.path.parent, call=smopd.Run)


def test_the_plot_shows_training_and_evaluations(apples, evaluated, tmp_path):
    figure = apples.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    training, accuracy = (axes for axes in figure.axes if axes.get_legend())
    losses = next(line for line in training.get_lines() if line.get_label() == "loss")
    assert list(losses.get_ydata()) == [row["loss"] for row in metrics(apples.path)]
    assert len(accuracy.patches) == sum(len(e) for e in apples.evaluations) >= 4  # two views of two


def test_a_model_with_a_verifier_of_this_call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = {"eval.tokens": 4, "eval.middle_tokens": 4, "progress": False}
    evaluation = smopd.evaluate("pocket", EXAMPLES[:1], views=["full"], verifier=last_number, **short)
    assert list(evaluation) == ["full"]
    assert evaluation.path.parent == tmp_path / "runs" or evaluation.path.parts[0] == "runs"
    assert json_lines(evaluation.path / "inputs" / "eval.jsonl")[0]["task"] == "last_number"
    always = smopd.evaluate("pocket", EXAMPLES[:1], views=["full"], verifier=lambda a, r: True, **short)
    assert always["full"]["accuracy"] == 1
    assert always.path != evaluation.path


def test_what_cannot_be_evaluated_says_why(apples, tmp_path):
    assert "the first argument is no run" in complaint("pocket", base=True, call=smopd.evaluate)
    message = complaint(apples, EXAMPLES, views=["shraded"], call=smopd.evaluate)
    assert "eval.views" in message
    other = [{**EXAMPLES[0], "task": "mine"}]  # the run's verifier judges every example
    evaluation = smopd.evaluate(apples, other, views=["full"], progress=False, out=tmp_path / "e")
    assert evaluation["full"]["total"] == 1
    malformed = [{**EXAMPLES[0], "answer": {"left": 6}}]
    assert "a last_number answer needs 'value'" in complaint(apples, malformed, call=smopd.evaluate)
