"""`smopd export --push`, against a stub of the hub: what arrives there, and what is said where it cannot."""

import base64
import json

import pytest
import torch
from peft import PeftModel
from support.http_stub import HttpStub, stubs_of
from support.runs import nobody, trainer_of
from transformers import AutoModelForCausalLM

from smopd.pocket import MODEL_DIR


class Hub(HttpStub):
    """The parts of the hub's API that an upload needs; keeps the files of each commit."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.created, self.files = status, [], {}
        super().__init__()

    def respond(self, path, body, headers):
        """As the hub would, to somebody who may write."""
        if self.status != 200 or headers.get("Authorization") != "Bearer hf_stub":
            return (self.status if self.status != 200 else 401), {"error": "no \x1b[31mentry"}
        if path == "/api/whoami-v2":
            return {"name": "me", "type": "user"}
        if path == "/api/repos/create":
            self.created.append(body)
            return {"url": f"{self.url}/me/{body['name']}", "id": f"me/{body['name']}"}
        if "/preupload/" in path:
            plain = {"uploadMode": "regular", "shouldIgnore": False, "oid": None}
            return {"files": [{"path": file["path"], **plain} for file in body["files"]]}
        if "/commit/" in path:
            for line in body:
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"success": True, "commitUrl": f"{self.url}/me/x/commit/{'0' * 40}", "commitOid": "0" * 40}
        return {}


@pytest.fixture
def hub(monkeypatch):
    """Starts hubs, the last of which is the one that is asked; with a token, and not offline."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_stub")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with stubs_of(Hub) as start:

        def started(*args):
            stub = start(*args)
            monkeypatch.setattr(constants, "ENDPOINT", stub.url)
            return stub

        yield started


def test_an_adapter_with_its_card_arrives_and_peft_loads_it_as_it_is(smopd, hub, run, tmp_path):
    assert smopd("eval", "run", "--limit", "2", "--out", "elsewhere")[0] == 0
    stub = hub()
    code, out, err = smopd("export", "run", "--adapter-only", "--push", "me/not-lost", "--private", "--json")
    assert code == 0, err
    exported = json.loads(out)
    assert exported["url"].endswith("/me/not-lost")
    assert exported["model"] == "me/not-lost"
    (created,) = stub.created
    assert (created["name"], created["organization"], created["visibility"]) == ("not-lost", "me", "private")
    assert set(stub.files) == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    assert str(MODEL_DIR.parent) not in "".join(
        stub.files[n].decode() for n in ("README.md", "adapter_config.json")
    )
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    for name, content in stub.files.items():
        (arrived / name).write_bytes(content)
    adapted = [
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(MODEL_DIR), str(folder)).eval()
        for folder in (arrived, run / "checkpoints" / "step-000002")
    ]
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.equal(*(model(input_ids=ids).logits for model in adapted))
    card = (arrived / "README.md").read_text()
    for excerpt in (
        "library_name: peft",
        "# me/not-lost",
        'PeftModel.from_pretrained(base, "me/not-lost")',
        "--max-lora-rank 16",
        "| base | pocket:eval:4 | SHARDED |",
        "| this model | pocket:eval:4 | FULL |",
        "pocket:eval:4, SHARDED: ",
        "## Limits",
        "one seed",
        "Nothing was measured beyond",
    ):
        assert excerpt in card, excerpt
    assert not [p for p in tmp_path.iterdir() if "not-lost" in p.name]  # only what was asked for is left here


def test_a_folded_model_goes_up_and_stays_here(smopd, hub, run, tmp_path):
    stub = hub()
    code, out, err = smopd("export", "run", "here", "--push", "me/whole")
    assert code == 0, err
    assert f"pushed: {stub.url}/me/whole" in out
    assert stub.files["model.safetensors"] == (tmp_path / "here" / "model.safetensors").read_bytes()
    card = stub.files["README.md"].decode()
    assert 'pipeline("text-generation", "me/whole")' in card
    assert "It was not evaluated" in card


def test_without_network_token_or_permission_it_is_said_before_any_work(
    smopd, hub, run, tmp_path, monkeypatch
):
    from huggingface_hub import constants

    def refused(*more: str) -> str:
        code, out, err = smopd("export", "run", "model", *more)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        assert "\x1b" not in err
        assert not (tmp_path / "model").exists()
        return err

    monkeypatch.setattr(constants, "ENDPOINT", nobody())
    assert "cannot be reached" in refused("--push", "me/x")
    hub(403)
    assert "refused (403)" in refused("--push", "me/x")
    hub()
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "hf auth login" in refused("--push", "me/x")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "no token for" in refused("--push", "me/x")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_TOKEN", "hf_stub")
    assert "HF_HUB_OFFLINE is set" in refused("--push", "me/x")
    assert "expected OWNER/NAME" in refused("--push", "x")
    assert "--push" in refused("--push", "me/x y")
    assert "--private: goes with --push" in refused("--private")
    assert "--dtype: an adapter is written" in refused("--adapter-only", "--dtype", "float16")
    code, _, err = smopd("export", "run")
    assert code == 2
    assert "name a folder for the model" in err


def test_plain_peft_computes_what_the_student_does(tmp_path):
    trainer = trainer_of(tmp_path / "r", "train.steps=1", "train.rollouts=2", "train.micro_batch=2",
                         "optim.lr=3e-2", "optim.warmup_steps=0")  # fmt: skip
    trainer.train()
    ids = torch.arange(40)[None]
    plain = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(MODEL_DIR), str(tmp_path / "r/checkpoints/step-000001")
    )
    with torch.no_grad():
        ours = trainer.model.eval()(input_ids=ids).logits
        torch.testing.assert_close(plain.eval()(input_ids=ids).logits, ours, rtol=1e-5, atol=1e-5)
        with plain.disable_adapter():
            assert (plain(input_ids=ids).logits - ours).abs().max() > 1e-2
