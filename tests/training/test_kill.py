"""A run killed with SIGKILL at random moments ends with the same bytes as one that was left alone
(tests/support/kill_run.py).
"""

import pytest
from support.kill_run import differences, main


@pytest.mark.long
@pytest.mark.parametrize("ahead", [1, 3])
def test_a_killed_run_leaves_the_same_bytes(tmp_path, capsys, ahead):
    """Also inside of a block of conversations that were sampled together."""
    arguments = ["--kills", "2", "--steps", "4", "--every", "1", "--set", f"rollout.ahead={ahead}"]
    code = main([*arguments, "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.count("\nkill ") == 2, out
    assert "the same bytes in" in out


def test_the_comparison_finds_one_byte_and_one_file(tmp_path):
    for name in ("straight", "killed"):
        (tmp_path / name / "rollouts").mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1}\n')
        (tmp_path / name / "timings.jsonl").write_text(name)
    assert differences(tmp_path / "straight", tmp_path / "killed") == []
    (tmp_path / "killed" / "metrics.jsonl").write_text('{"step": 2}\n')
    (tmp_path / "killed" / "rollouts" / "x.partial").touch()
    mismatches = differences(tmp_path / "straight", tmp_path / "killed")
    assert mismatches == ["metrics.jsonl: not the same bytes", "rollouts/x.partial: only in killed"]
