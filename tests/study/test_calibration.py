"""Calibration of the token log against brute force, and what the numbers mean on logs made to order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smopd.errors import UserError
from smopd.runs.tokens import TYPES, Columns, write
from smopd.study.calibration import auroc, auroc_interval, calibration, load_tokens


def make(n: int, seed: int, misleading: bool = False) -> dict[str, np.ndarray]:
    """Tokens whose entropy says (or, misleading, says the opposite of) how far the teacher is."""
    r = np.random.default_rng(seed)
    entropy = r.exponential(0.5, n)
    student = -r.exponential(0.3, n)
    away = r.random(n) < (
        1 / (1 + np.exp(-3 * (entropy - 1))) if not misleading else 1 / (1 + np.exp(3 * (entropy - 0.2)))
    )
    teacher = np.where(away, student - 2, student + r.normal(0, 0.05, n))
    return {
        "entropy": entropy, "student_logp": student, "teacher_logp": np.minimum(teacher, 0),
        "divergence": away * 0.4,
        "kept": entropy >= np.quantile(entropy, 0.2), "clipped": np.zeros(n), "rollout": np.arange(n) // 20,
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30))
def test_auroc_counts_pairs(rows):
    """Every pair of an event and a non-event, ties half, weights as repetitions."""
    score, event, weight = (np.array(column) for column in zip(*rows, strict=True))
    pairs = [
        ((a > b) + 0.5 * (a == b), u * v)
        for a, e, u in zip(score, event, weight, strict=True)
        if e
        for b, f, v in zip(score, event, weight, strict=True)
        if not f
    ]
    total = sum(w for _, w in pairs)
    area = auroc(score.astype(float), event, weight.astype(float))
    assert np.isnan(area) if not total else area == pytest.approx(sum(x * w for x, w in pairs) / total)


def test_auroc_is_mann_whitney():
    r = np.random.default_rng(3)
    score, event = r.normal(size=300).round(1), r.random(300) < 0.3
    u = stats.mannwhitneyu(score[event], score[~event]).statistic
    assert auroc(score, event) == pytest.approx(u / (event.sum() * (~event).sum()))


def test_the_interval_covers_and_draws_whole_rollouts():
    """Tokens of one rollout share their fate: a bootstrap over tokens would be far too narrow, over rollouts
    it covers.
    """
    truth = 0.5  # scores say nothing
    inside = 0
    for seed in range(120):
        r = np.random.default_rng(seed)
        cluster = np.repeat(np.arange(40), 15)
        event = (r.random(40) < 0.5)[cluster]
        score = r.normal(size=40)[cluster] + 0.01 * r.normal(size=600)
        _, low, high = auroc_interval(score, event, cluster)
        inside += low <= truth <= high
    assert inside / 120 > 0.88


def test_entropy_that_predicts_disagreement_and_entropy_that_misleads():
    good, bad = calibration(make(4000, 1)), calibration(make(4000, 1, misleading=True))
    assert good["auroc_low"] > 0.5
    assert bad["auroc_high"] < 0.5
    assert good["agreement_dropped"] > good["agreement_kept"]
    assert bad["agreement_dropped"] < bad["agreement_kept"]


def test_numbers_equal_plain_ones():
    tokens = make(1000, 5)
    summary = calibration(tokens)
    agrees = tokens["teacher_logp"] - tokens["student_logp"] >= np.log(0.5)
    assert summary["tokens"] == 1000
    assert summary["rollouts"] == 50
    assert summary["agreement"] == pytest.approx(agrees.mean(), rel=1e-5)
    assert summary["dropped"] == pytest.approx(1 - tokens["kept"].mean(), rel=1e-5)
    s, t = np.exp(tokens["student_logp"]), np.exp(tokens["teacher_logp"])
    error = 0.0
    for bin_ in summary["bins"]:
        in_bin = (s >= bin_["low"]) & ((s < bin_["high"]) | (bin_["high"] == 1.0))
        assert bin_["count"] == in_bin.sum()
        assert bin_["teacher"] == pytest.approx(t[in_bin].mean(), rel=1e-5)
        error += in_bin.sum() * abs(s[in_bin].mean() - t[in_bin].mean()) / 1000
    assert summary["ece"] == pytest.approx(error, rel=1e-4)
    assert sum(b["count"] for b in summary["bins"]) == sum(b["count"] for b in summary["by_entropy"]) == 1000


def test_degenerate_logs():
    tokens = make(50, 2)
    same = tokens | {
        "teacher_logp": tokens["student_logp"],
        "entropy": np.zeros(50),
        "kept": np.ones(50, bool),
    }
    summary = calibration(same)
    assert summary["agreement"] == 1.0
    assert summary["auroc"] is None  # nothing to tell apart
    assert summary["agreement_dropped"] is None
    assert summary["ece"] == pytest.approx(0)
    assert [b["count"] for b in summary["by_entropy"]] == [50]
    assert calibration({name: column[:0] for name, column in tokens.items()}) is None


def test_a_log_on_disk_is_read_by_part_with_rollouts_numbered_through(tmp_path):
    import torch

    (tmp_path / "config.toml").write_text("")
    for step in (1, 2):
        columns = {name: torch.arange(6).to(getattr(torch, kind)) for name, kind in TYPES.items()}
        columns |= {
            "part": torch.tensor([0, 0, 0, 1, 2, 0], dtype=torch.uint8),
            "rollout": torch.tensor([0, 0, 1, 1, 1, 1]).short(),
        }
        write(
            tmp_path / "tokens" / f"step-{step:06d}.safetensors",
            Columns(columns, ["a", "b"], ["middle", "answer", "full"], ["middle"]),
        )
    tokens = load_tokens(tmp_path)
    assert tokens["rollout"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert tokens["position"].tolist() == [0, 1, 2, 5] * 2
    with pytest.raises(UserError, match="not a run folder"):
        load_tokens(tmp_path / "elsewhere")
