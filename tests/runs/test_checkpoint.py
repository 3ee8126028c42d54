"""Checkpoints: everything comes back, the same bytes every time, damage is found and named, and a disk may
fail at any moment.
"""

import builtins
import errno
import io
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import safetensors.torch
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError

from smopd.config import Config, load_config, settings_hash
from smopd.errors import UserError
from smopd.machine import code_version
from smopd.models import load_model
from smopd.models.adapter_files import REQUIRED, STUDENT, checkpoints, damage, seal
from smopd.models.adapters import attach, student_parameters, teacher_parameters, update_teacher
from smopd.runs.writer import RunFolder

CONFIG = load_config("pocket")
FILES = sorted([*REQUIRED, "README.md", "checksums.json"])


class Learner:
    """A model with its optimizer, moved by gradients that nothing but the step decides."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.model = attach(load_model(config).model, config.lora, config.seed)
        self.parameters = list(student_parameters(self.model).values())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3)

    def learn(self, step: int) -> None:
        torch.manual_seed(step)
        for parameter in self.parameters:
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.param_groups[0]["lr"] = 0.1 / (step + 3)
        self.optimizer.step()
        update_teacher(self.model, 0.9)

    def state(self) -> dict[str, torch.Tensor]:
        kept = self.optimizer.state_dict()["state"]
        return {
            **{f"student.{n}": p.detach().clone() for n, p in student_parameters(self.model).items()},
            **{f"teacher.{n}": p.detach().clone() for n, p in teacher_parameters(self.model).items()},
            **{f"optimizer.{i}.{n}": t.clone() for i, tensors in kept.items() for n, t in tensors.items()},
        }


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return set(a) == set(b) and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, dict[int, dict[str, torch.Tensor]]]:
    """A run with checkpoints of the steps 2 and 4, and what they hold."""
    path, states, learner = tmp_path_factory.mktemp("run"), {}, Learner()
    folder = RunFolder(path, CONFIG)
    folder.begin()
    for step in range(1, 5):
        learner.learn(step)
        if step % 2 == 0:
            folder.save_checkpoint(step, learner.model, learner.optimizer, 2)
            states[step] = learner.state()
    return path, states


@pytest.fixture
def run(written, tmp_path) -> Path:
    """A copy of it to break."""
    return shutil.copytree(written[0], tmp_path / "run")


@pytest.fixture(scope="module")
def other() -> Learner:
    """Somebody to restore into."""
    return Learner()


def test_everything_comes_back(written):
    path, states = written
    learner = Learner()
    assert not same(learner.state(), states[4])
    assert RunFolder(path, CONFIG).restore(learner.model, learner.optimizer) == 4
    assert same(learner.state(), states[4])
    group = learner.optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["foreach"]) == (0.1 / 7, (0.9, 0.999), None)
    assert (
        RunFolder(path, CONFIG).restore(
            learner.model, learner.optimizer, only=path / "checkpoints" / "step-000002"
        )
        == 2
    )
    assert same(learner.state(), states[2])
    for step in (3, 4):
        learner.learn(step)
    assert same(learner.state(), states[4])


def test_the_same_state_gives_the_same_bytes(written, tmp_path):
    path, _ = written
    learner = Learner()
    source = RunFolder(path, CONFIG)
    source.restore(learner.model, learner.optimizer, only=path / "checkpoints" / "step-000002")
    for step in (3, 4):
        learner.learn(step)
    again = RunFolder(tmp_path / "again", CONFIG).save_checkpoint(4, learner.model, learner.optimizer, 1)
    assert sorted(p.name for p in again.iterdir()) == FILES
    for name in FILES:
        assert (again / name).read_bytes() == (path / "checkpoints" / "step-000004" / name).read_bytes(), name
    # A set, whose order PEFT takes from the hash seed of the process.
    targets = json.loads((again / "adapter_config.json").read_text())["target_modules"]
    assert targets == sorted(CONFIG.lora.targets)
    assert (
        len({p.stat().st_mode for p in again.iterdir()}) == 1
    )  # safetensors alone would leave some to their owner


def test_the_adapter_is_plain_peft(written):
    path, states = written
    model = PeftModel.from_pretrained(load_model(CONFIG).model, str(path / "checkpoints" / "step-000004"))
    loaded = get_peft_model_state_dict(model, adapter_name="default")
    assert len(loaded) == sum(k.startswith("student.") for k in states[4])
    assert all(torch.equal(tensor, states[4][f"student.{name}"]) for name, tensor in loaded.items())


def test_what_a_checkpoint_says_of_itself(written):
    state = json.loads((written[0] / "checkpoints" / "step-000004" / "state.json").read_text())
    assert state == {"step": 4, "settings": settings_hash(CONFIG), "smopd": code_version()}


def _flip(path: Path, at: float) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(at * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


WOUNDS = {
    "first byte": lambda p: _flip(p, 0),
    "middle byte": lambda p: _flip(p, 0.5),
    "last byte": lambda p: _flip(p, 1),
    "truncated": _truncate,
    "emptied": lambda p: p.write_bytes(b""),
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("wound", WOUNDS)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_named_and_the_checkpoint_before_is_used(run, written, other, caplog, name, wound):
    WOUNDS[wound](run / "checkpoints" / "step-000004" / name)
    with caplog.at_level(logging.WARNING, "smopd"):
        assert RunFolder(run, CONFIG).restore(other.model, other.optimizer) == 2
    (message,) = [r.getMessage() for r in caplog.records]
    problem = f"it has no {name}" if name == "checksums.json" and wound == "deleted" else name
    assert f"step-000004: damaged: {problem}" in message
    assert "step-000002 is used" in message
    assert same(other.state(), written[1][2])
    with pytest.raises(UserError, match="step-000004: damaged"):
        RunFolder(run, CONFIG).restore(other.model, other.optimizer, only=run / "checkpoints" / "step-000004")


def test_an_undamaged_run_warns_of_nothing(run, other, caplog):
    folder = RunFolder(run, CONFIG)
    assert folder.latest_valid_checkpoint() == run / "checkpoints" / "step-000004"
    assert not caplog.records


def test_nothing_sound_is_an_error_that_says_what_to_do(run, other):
    for step in (2, 4):
        (run / "checkpoints" / f"step-{step:06d}" / "optimizer.json").unlink()
    with pytest.raises(UserError) as error:
        RunFolder(run, CONFIG).restore(other.model, other.optimizer)
    message = str(error.value)
    assert message.count("optimizer.json is missing") == 2
    assert f"delete the folder {run / 'checkpoints'}, and the same command starts over" in message
    shutil.rmtree(run / "checkpoints")
    assert RunFolder(run, CONFIG).restore(other.model, other.optimizer) == 0


def test_a_checkpoint_of_an_earlier_version_is_said_to_be_one(run):
    (run / "checkpoints" / "step-000004" / "checksums.json").unlink()
    assert "an earlier smopd wrote it" in str(damage(run / "checkpoints" / "step-000004"))


def test_damage_to_the_list_is_not_blamed_on_a_sound_file(run):
    path = run / "checkpoints" / "step-000004" / "checksums.json"
    listed = json.loads(path.read_text())
    path.write_text(json.dumps(listed | {"state.json": listed["state.json"][::-1]}))
    assert damage(path.parent) == "checksums.json is not what was written"


def test_a_list_that_leaves_out_a_file_is_not_believed(run):
    folder = run / "checkpoints" / "step-000004"
    (folder / "teacher.safetensors").unlink()
    (folder / "checksums.json").unlink()
    seal(folder)
    assert damage(folder) == "checksums.json does not list teacher.safetensors"


def test_a_damaged_checkpoint_is_replaced_and_does_not_count(run, other):
    (run / "checkpoints" / "step-000004" / "state.json").unlink()
    folder = RunFolder(run, CONFIG)
    assert folder.restore(other.model, other.optimizer) == 2
    folder.cut_metrics(2)
    other.learn(3)
    folder.save_checkpoint(3, other.model, other.optimizer, 1)
    assert [p.name for p in checkpoints(folder.path)] == [
        "step-000003",
        "step-000004",
    ]  # the sound one was not pruned for it
    other.learn(4)
    folder.save_checkpoint(4, other.model, other.optimizer, 2)
    assert [p.name for p in checkpoints(folder.path) if not damage(p)] == ["step-000003", "step-000004"]


def test_a_damaged_checkpoint_that_is_never_reached_again_goes(run, other):
    _truncate(run / "checkpoints" / "step-000004" / "state.json")
    folder = RunFolder(run, CONFIG)
    folder.restore(other.model, other.optimizer)
    folder.save_checkpoint(5, other.model, other.optimizer, 2)
    assert [p.name for p in checkpoints(folder.path)] == ["step-000002", "step-000005"]


def test_other_settings_are_refused_except_those_that_may_change(run, other):
    def restore(*overrides: str) -> int:
        folder = RunFolder(run, CONFIG)
        folder.config = load_config("pocket", overrides)  # as after an edit of config.toml
        return folder.restore(other.model, other.optimizer)

    with pytest.raises(UserError, match=f"other settings .hash {settings_hash(CONFIG)}"):
        restore("optim.lr=1e-5")
    assert restore("engine.kind=vllm-http", 'engine.servers=["http://elsewhere:8000"]') == 4
    # A setting of a later version, at its default, is not another setting.
    assert settings_hash(load_config("pocket", ["train.save_rollouts=true"])) == settings_hash(CONFIG)


def test_a_checkpoint_of_another_model_is_a_message(run):
    narrow = Learner(load_config("pocket", ["lora.r=4"]))
    with pytest.raises(UserError, match="step-000004: does not fit this model"):
        RunFolder(run, CONFIG).restore(narrow.model, narrow.optimizer)


def test_everything_is_on_disk_before_the_name_is(run, other, monkeypatch):
    done, fsync, rename = [], os.fsync, os.rename

    def synced(descriptor):
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.removesuffix(".partial"))
        fsync(descriptor)

    def renamed(old, new):
        done.append("renamed")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    RunFolder(run, CONFIG).save_checkpoint(6, other.model, other.optimizer, 3)
    before, after = done[: done.index("renamed")], done[done.index("renamed") + 1 :]
    assert set(FILES) <= set(before)
    assert before.index("checksums.json") > max(
        before.index(name) for name in FILES if name != "checksums.json"
    )
    assert before[-1] == ".partial-step-000006"
    assert after == ["checkpoints"]


class FullDisk:
    """The `after`-th operation that writes fails with ENOSPC, having done half of its work, and so does every
    later one.
    """

    def __init__(self, patch: pytest.MonkeyPatch, after: int) -> None:
        self.after, self.count = after, 0
        for name in ("write", "fsync", "rename", "replace", "mkdir"):
            patch.setattr(os, name, self.failing(getattr(os, name), name == "write"))
        plain_open, plain_os_open, serialize = io.open, os.open, safetensors.torch.serialize_file

        def opened(file, mode="r", *args, **options):
            return (self.failing(plain_open) if set(mode) & set("wax+") else plain_open)(
                file, mode, *args, **options
            )

        def os_opened(path, flags, *args, **options):
            return (self.failing(plain_os_open) if flags & (os.O_WRONLY | os.O_RDWR) else plain_os_open)(
                path, flags, *args, **options
            )

        def serialized(tensors, path, *args, **options):
            if self.full():
                Path(path).write_bytes(b"half of it")
                raise SafetensorError(
                    "Error while serializing: I/O error: No space left on device (os error 28)"
                )
            return serialize(tensors, path, *args, **options)

        patch.setattr(builtins, "open", opened)
        patch.setattr(io, "open", opened)
        patch.setattr(os, "open", os_opened)
        patch.setattr(safetensors.torch, "serialize_file", serialized)

    def full(self) -> bool:
        self.count += 1
        return self.count > self.after

    def failing(self, real, halves: bool = False):
        def call(*args, **options):
            if not self.full():
                return real(*args, **options)
            if halves:
                real(args[0], args[1][: len(args[1]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call


def test_the_disk_may_fill_up_at_any_moment(run, written, monkeypatch, other):
    learner = Learner()
    folder = RunFolder(run, CONFIG)
    folder.restore(learner.model, learner.optimizer)
    state = learner.state()
    new = run / "checkpoints" / "step-000006"
    for after in range(200):
        kept = shutil.copytree(run / "checkpoints", run.parent / "kept")
        with monkeypatch.context() as patch:
            disk = FullDisk(patch, after)
            try:
                folder.save_checkpoint(6, learner.model, learner.optimizer, 2)
                break
            except UserError as error:
                message = str(error)
        visible = checkpoints(folder.path)
        assert all(damage(p) is None for p in visible), (after, message)
        assert run / "checkpoints" / "step-000004" in visible
        assert [p.name for p in run.rglob(".partial*")] == []
        assert "cannot be written: No space left on device" in message
        assert f"checkpoint (step {6 if new in visible else 4}) is intact" in message
        assert folder.restore(other.model, other.optimizer) == (6 if new in visible else 4)
        assert same(other.state(), written[1][4])
        shutil.rmtree(run / "checkpoints")
        kept.rename(run / "checkpoints")
    assert disk.count == after
    assert after > 30  # it really went through the operations one by one
    assert [p.name for p in checkpoints(folder.path)] == ["step-000004", "step-000006"]
    assert folder.restore(other.model, other.optimizer) == 6
    assert same(other.state(), state)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of four megabytes, with a function that mounts it read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "smopd-test", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (needs root)")
    yield place, lambda how: subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_really_full_and_one_that_is_read_only(small_disk, written, other):
    place, remount = small_disk
    folder = RunFolder(place / "run", CONFIG)
    folder.begin()
    learner = Learner()
    learner.learn(1)
    folder.save_checkpoint(1, learner.model, learner.optimizer, 2)
    state = learner.state()
    learner.learn(2)
    ballast = place / "ballast"

    def attempt(reason: str) -> None:
        with pytest.raises(UserError, match=reason) as error:
            folder.save_checkpoint(2, learner.model, learner.optimizer, 2)
        assert "checkpoint (step 1) is intact: once this is mended, the same command continues" in str(
            error.value
        )
        assert [p.name for p in (place / "run" / "checkpoints").iterdir()] == ["step-000001"]
        assert folder.restore(other.model, other.optimizer) == 1
        assert same(other.state(), state)

    for free in range(0, 1_400_000, 100_000):  # a checkpoint has 2.6 MB
        usage = shutil.disk_usage(place)
        ballast.write_bytes(
            bytes(max(0, usage.free + (ballast.stat().st_size if ballast.exists() else 0) - free))
        )
        attempt("No space left on device")
        # A row that does not fit leaves the rows before it whole.
        if not free:
            with pytest.raises(UserError, match=r"metrics\.jsonl: cannot be written: No space left"):
                folder.add_metrics({"step": 2, "note": "x" * 10_000})
            assert folder.metrics() == []
    ballast.unlink()
    remount("size=8m,ro")
    attempt("Read-only file system")
    with pytest.raises(UserError, match="Read-only file system"), folder.lock():
        pass
    remount("size=8m,rw")
    folder.save_checkpoint(2, learner.model, learner.optimizer, 2)
    assert folder.restore(other.model, other.optimizer) == 2
    assert STUDENT in other.model.peft_config
