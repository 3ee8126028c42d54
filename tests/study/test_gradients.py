"""Gradient shares on a real pocket run: the split is exact, and it is the split of the mask that is asked
for.
"""

import json

import pytest
from support.runs import train

from smopd.errors import UserError
from smopd.study.gradients import gradient_shares


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, short = tmp_path_factory.mktemp("gradients"), ("train.steps=1", "train.rollouts=2")
    return {method: train(folder / method, *short, method=method) for method in ("baseline", "inverted-mask")}


@pytest.mark.slow
def test_shares_of_the_masks(runs):
    shares_by_method = {method: gradient_shares(path, examples=4) for method, path in runs.items()}
    for shares in shares_by_method.values():
        assert 0.1 < shares["tokens_dropped"] < 0.25
        assert shares["norm_share_dropped"] == pytest.approx(
            shares["norm_dropped"] / (shares["norm_dropped"] + shares["norm_kept"])
        )
        # the parts of one vector: the law of cosines holds
        whole = shares["norm_kept"] ** 2 + shares["norm_dropped"] ** 2
        whole += 2 * shares["cosine"] * shares["norm_kept"] * shares["norm_dropped"]
        assert whole == pytest.approx(shares["norm_all"] ** 2, rel=1e-6)
        assert shares["keep"] == 0.8
        assert set(shares["terms"]) == {"middle", "answer"}
        assert min(shares["terms"].values()) > 0
    # What is dropped at low entropy (asked of a run without a mask) carries next to nothing; at high entropy
    # it carries much.
    assert shares_by_method["baseline"]["norm_share_dropped"] < 0.1
    assert shares_by_method["inverted-mask"]["norm_share_dropped"] > 0.2
    assert (
        shares_by_method["baseline"]["divergence_dropped"]
        < shares_by_method["inverted-mask"]["divergence_dropped"]
    )


@pytest.mark.slow
def test_the_verb_saves_what_it_prints_and_leaves_the_run_alone(runs, smopd):
    run = runs["inverted-mask"]
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    code, out, err = smopd("study", "gradients", str(run), "--examples", "2", "--json")
    assert code == 0, err
    assert json.loads(out) == json.loads((run / "gradients.json").read_text())
    assert {p: p.read_bytes() for p in before} == before
    code, again, _ = smopd("study", "gradients", str(run), "--examples", "2")
    assert "of the gradient norm" in again
    assert json.loads(out) == json.loads((run / "gradients.json").read_text())  # the same again
    (run / "gradients.json").unlink()


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        gradient_shares(tmp_path)
    (tmp_path / "config.toml").write_text('method = "entropy"\n', encoding="utf-8")
    with pytest.raises(UserError, match="no checkpoint"):
        gradient_shares(tmp_path)
