"""`SMOPDTrainer`: the same run under the names of transformers and TRL."""

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from peft import LoraConfig, PeftModel
from support.apples import EXAMPLES, SMALL, last_number
from support.runs import complaint, metrics, nobody
from transformers import AutoModelForCausalLM, TrainerCallback

import smopd
from smopd.config import load_config
from smopd.config_io import leaves
from smopd.errors import UserError
from smopd.pocket import MODEL_DIR
from smopd.trainer_names import MAPPING

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("python.md", "configuration.md"))
EVENTS = ("train_begin", "step_begin", "step_end", "log", "evaluate", "save", "train_end")


class Listener(TrainerCallback):
    """Remembers every event, and asks for the end after a step."""

    def __init__(self, stop_after: int = 0) -> None:
        self.seen: list[tuple[str, int]] = []
        self.stop_after = stop_after

    def on_step_end(self, args, state, control, **kwargs):
        self.seen.append(("step_end", state.global_step))
        assert kwargs["model"] is not None
        control.should_training_stop = state.global_step == self.stop_after


for name in set(EVENTS) - {"step_end"}:

    def heard(self, args, state, control, event=name, **kwargs):
        self.seen.append((event, state.global_step))

    setattr(Listener, f"on_{name}", heard)


def trainer(out, *, steps=2, callbacks=(), **more):
    config = {"train.save_tokens": True, **{k: v for k, v in SMALL.items() if k != "train.rollouts"}}
    for key in ("train.micro_batch", "train.checkpoint_every"):
        del config[key]
    args = smopd.SMOPDConfig(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=2, save_steps=1, overrides=config,
        **more,
    )  # fmt: skip
    return smopd.SMOPDTrainer(
        "pocket", args=args, train_dataset=EXAMPLES, eval_dataset=EXAMPLES[:2], verifier=last_number,
        callbacks=callbacks,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trainer that has trained two steps, stopped once in between."""
    out = tmp_path_factory.mktemp("trainer") / "run"
    stopping, listener = Listener(stop_after=1), Listener()
    trainer(out, callbacks=[stopping]).train()
    resumed = trainer(out, callbacks=[listener])
    resumed.train(resume_from_checkpoint=True)
    return resumed, stopping, listener


def test_it_is_the_run_that_the_short_way_makes(trained, apples):
    assert metrics(trained[0].run.path) == metrics(apples.path)


def test_callbacks_are_called_at_their_points_and_may_stop_the_run(trained):
    _, stopping, listener = trained
    assert stopping.seen == [
        ("train_begin", 0), ("step_begin", 0), ("step_end", 1), ("log", 1), ("save", 1), ("train_end", 1),
    ]  # fmt: skip
    assert listener.seen == [
        ("train_begin", 1), ("step_begin", 1), ("step_end", 2), ("log", 2), ("save", 2), ("train_end", 2),
    ]  # fmt: skip


def test_the_history_holds_every_step(trained):
    resumed = trained[0]
    assert [row["step"] for row in resumed.log_history if "loss" in row] == [1, 2]
    assert resumed.log_history[0]["learning_rate"] > 0
    assert resumed.state.global_step == resumed.state.max_steps == 2
    assert resumed.state.epoch == 1.0  # two steps of two examples, of four


def test_evaluation_in_and_after_training(tmp_path):
    listener = Listener()
    new_trainer = trainer(
        tmp_path / "run", steps=1, eval_steps=1, callbacks=[listener], metric_for_best_model="sharded"
    )
    new_trainer.train()
    assert ("evaluate", 1) in listener.seen
    assert new_trainer.state.best_metric == new_trainer.log_history[-1]["eval_sharded"]
    scores = new_trainer.evaluate()
    assert set(scores) == {
        f"eval_{view}{end}" for view in ("full", "sharded") for end in ("", "_low", "_high")
    }
    assert listener.seen.count(("evaluate", 1)) == 2


def test_the_saved_model_is_a_plain_adapter(trained, tmp_path):
    out = trained[0].save_model(tmp_path / "model")
    base = AutoModelForCausalLM.from_pretrained(MODEL_DIR)
    assert PeftModel.from_pretrained(base, out).peft_config["default"].r == 4
    assert (out / "tokenizer.json").exists()
    card = (out / "README.md").read_text()
    assert "library_name: peft" in card
    assert "merged into" not in card
    message = complaint(tmp_path / "x", call=trainer(tmp_path / "none").save_model)
    assert "nothing is trained yet" in message


class Hub(BaseHTTPRequestHandler):
    """As much of the Hugging Face hub as an upload of small files asks for."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        url = f"http://{self.headers['Host']}"
        if self.path.endswith("/validate-yaml"):
            answer = {"errors": [], "warnings": []}
        elif self.path.endswith("/repos/create"):
            answer = {"url": f"{url}/me/apples", "id": "me/apples", "name": "me/apples"}
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            answer = {"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]}
        else:
            lines = [json.loads(line) for line in body.splitlines()]
            files = [line["value"] for line in lines if line["key"] == "file"]
            self.files.update({f["path"]: base64.b64decode(f["content"]) for f in files})
            answer = {"commitUrl": f"{url}/me/apples/commit/1", "commitOid": "1", "success": True}
        self._answer(answer)

    def do_GET(self) -> None:
        self._answer({"id": "me/apples", "sha": "1", "siblings": [], "private": True, "tags": []})

    def _answer(self, value: dict[str, object]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch):
    """Uploads go to a server of this test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Hub.files
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_is_pushed_is_what_is_saved(trained, tmp_path, hub):
    address = trained[0].push_to_hub("me/apples", token="hf_test")
    assert address.endswith("/me/apples/commit/1")
    saved = trained[0].save_model(tmp_path / "model")
    assert set(hub) == {path.name for path in saved.iterdir()}
    assert hub["adapter_model.safetensors"] == (saved / "adapter_model.safetensors").read_bytes()
    pushed, local = (
        json.loads(hub["adapter_config.json"]),
        json.loads((saved / "adapter_config.json").read_text()),
    )
    assert Path(local["base_model_name_or_path"]).is_absolute()
    assert pushed == local | {"base_model_name_or_path": "pocket"}  # no path of this machine


def test_a_push_that_fails_says_why(trained, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nobody())
    message = complaint("me/apples", token="hf_test", call=trained[0].push_to_hub)
    assert message.startswith("push_to_hub: me/apples was not uploaded: ")


def test_a_mistake_is_told_before_anything_is_trained(tmp_path):
    message = complaint(tmp_path, overrides={"optim.lr": 1e-4}, learning_rate=1e-4, call=_config)
    assert message == "overrides: optim.lr is set by learning_rate too; give one of them"
    assert "expected one of" in complaint(tmp_path / "x", lr_scheduler_type="wavy", call=trainer)
    with pytest.raises(TypeError, match="num_epochs"):
        smopd.SMOPDConfig(num_epochs=3)
    for name, value, pattern in FOREIGN:
        with pytest.raises((TypeError, UserError), match=pattern):
            smopd.SMOPDConfig(**{name: value})
    holds = trainer(tmp_path / "x")
    assert "holds no run that could be resumed" in complaint(True, call=holds.train)


FOREIGN = [
    ("num_train_epochs", 3, "there are no epochs here: set train.steps"),
    ("bf16", True, r"bf16 is model.dtype here: pass dtype='bfloat16'"),
    ("use_vllm", True, "use_vllm is engine.kind here: pass overrides="),
    ("lr", 1e-4, "lr is optim.lr here: pass learning_rate=0.0001"),
]


def _config(out, **more):
    return smopd.SMOPDConfig(output_dir=str(out), **more).settings()


def test_a_peft_config_is_rank_scale_and_layers(tmp_path):
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    new_trainer = smopd.SMOPDTrainer("pocket", peft_config=lora)
    config = new_trainer._call().config()
    assert (config.lora.r, config.lora.alpha, config.lora.targets) == (8, 16, ["q_proj", "v_proj"])
    message = complaint("pocket", peft_config=LoraConfig(use_dora=True), call=smopd.SMOPDTrainer)
    assert "smopd trains plain LoRA adapters; it has no use_dora" in message


def test_every_field_is_a_setting_and_stands_in_the_page():
    known = leaves(type(load_config("pocket")))
    fields = set(smopd.SMOPDConfig.__dataclass_fields__)
    assert set(MAPPING) <= fields
    assert set(MAPPING.values()) <= set(known)
    table = dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", PAGE, re.M))
    assert table.items() >= MAPPING.items()
    assert fields - set(MAPPING) == set(re.findall(r"^\| `(\w+)` \| [^`]", PAGE, re.M)) & fields
