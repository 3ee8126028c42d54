"""Loading a chat model and its tokenizer from a folder, a GGUF file, the hub, or the package (`pocket`).
Code that a model brings along is never run, and nobody is asked whether it should be.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.chat import Renderer
from smopd.devices import use_cores
from smopd.errors import UserError
from smopd.lazy import torch
from smopd.models.adapter_files import first_line
from smopd.pocket import MODEL_DIR
from smopd.settings import Settings

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedModel

log = logging.getLogger("smopd")
HUB_SECONDS = 5.0  # that one question to the hub may take
# Said at every call: left to itself, transformers asks the person at the terminal.
NO_CODE: dict[str, Any] = {"trust_remote_code": False}


@dataclass(frozen=True)
class ChatModel:
    model: PreTrainedModel
    renderer: Renderer


def load_model(config: Settings, device: torch.device | str = "cpu") -> ChatModel:
    """Load what `config.model` names; every failure says which setting to mend."""
    path, gguf = _source(config)
    quantized = _quantization_options(config, device)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    # cuDNN's attention makes a plan for every new shape, 20 to 40 ms each, and every turn has a new shape.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with _explain_failures(config):
        tokenizer = AutoTokenizer.from_pretrained(path, **gguf, **NO_CODE)
        dtype, attention = getattr(torch, config.model.dtype), config.model.attention
        settings = {"dtype": dtype, "attn_implementation": attention, "output_loading_info": True}
        loaded: Any = AutoModelForCausalLM.from_pretrained(path, **settings, **gguf, **quantized, **NO_CODE)
        model: PreTrainedModel = loaded[0]
        if missing := sorted(loaded[1]["missing_keys"]):  # transformers fills them with random numbers
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(f"its weights lack {missing[0]}{more}")
    use_cores(model.num_parameters())
    renderer = _renderer(config, tokenizer, model.generation_config, model.config)
    if gguf:
        # Its weights are plain numbers now, and PEFT and `save_pretrained` would look for the quantised kind.
        vars(model.config).pop("quantization_config", None)
        model.hf_quantizer = None  # type: ignore[assignment]
    capped = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if capped and model.config._attn_implementation == "sdpa":  # Gemma 2: SDPA would leave the cap out
        problem = "this model soft-caps its attention, which model.attention = 'sdpa' leaves out"
        log.warning("%s: 'eager' is used, which is slower", problem)
        model.set_attn_implementation("eager")
    # The sampling defaults of a model (penalties, top-k, ...) must not colour rollouts.
    model.generation_config = GenerationConfig()
    if not quantized:  # those are where they belong, and cannot be moved
        model.to(torch.device(device))  # type: ignore[arg-type]
    return ChatModel(model.eval(), renderer)


def check_model(config: Settings) -> None:
    """A UserError for what `load_model` would refuse before it reads any weights."""
    _source(config)
    check_quantized(config)


def _local_path(config: Settings) -> Path:
    return MODEL_DIR if config.model.path == "pocket" else Path(config.model.path).expanduser()


def model_source(config: Settings) -> str:
    """What transformers or vLLM is asked to load: the folder that `model.path` names, or the name itself."""
    path = _local_path(config)
    return str(path) if path.is_dir() else config.model.path


def config_file(config: Settings) -> Path | None:
    """The config.json of what `model.path` names: in its folder, or as it was once downloaded."""
    folder = _local_path(config)
    if folder.is_dir():
        return folder / "config.json" if (folder / "config.json").is_file() else None
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(config.model.path, "config.json")
    except ValueError:  # no name that the hub could have
        return None
    return Path(cached) if isinstance(cached, str) else None


def load_renderer(config: Settings) -> Renderer:
    """The chat template and end tokens of what `config.model` names, without its weights."""
    path, gguf = _source(config)
    from transformers import AutoConfig, AutoTokenizer

    with _explain_failures(config):
        tokenizer = AutoTokenizer.from_pretrained(path, **gguf, **NO_CODE)
        generation = load_generation_config(config)
        model = AutoConfig.from_pretrained(path, **gguf, **NO_CODE)
    return _renderer(config, tokenizer, generation, model)


def skeleton(config: Settings) -> PreTrainedModel:
    """The layers of what `config.model` names, without their weights: on the meta device."""
    path, gguf = _source(config)
    from transformers import AutoConfig, AutoModelForCausalLM

    with _explain_failures(config), torch.device("meta"):
        settings = AutoConfig.from_pretrained(path, **gguf, **NO_CODE)
        return AutoModelForCausalLM.from_config(settings, **NO_CODE)


def load_generation_config(config: Settings) -> GenerationConfig | None:
    """How the base's makers sample it; not every model says."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(_source(config)[0])
    except OSError:
        return None


def lora_targets(model: torch.nn.Module, targets: Sequence[str]) -> list[str]:
    """`lora.targets` as linear layers of this model, each of them there; "all-linear": all but the head."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    layers = dict(model.named_modules())
    linear = [n for n, m in layers.items() if isinstance(m, torch.nn.Linear) and m is not head]
    names = [n.removesuffix(".base_layer").rpartition(".")[2] for n in linear if "lora_" not in n]
    there = list(dict.fromkeys(names))
    if list(targets) == ["all-linear"]:
        return there
    if missing := [t for t in targets if not any(n == t or n.endswith(f".{t}") for n in layers)]:
        instead = f"{', '.join(there)} (--set 'lora.targets={json.dumps(there)}')"
        problem = f"this model has no layer named {', '.join(missing)}; its linear layers are"
        raise UserError(f"lora.targets: {problem}: {instead}")
    return list(targets)


def weights_digest(config: Settings) -> str | None:
    """What tells one state of a local model from another without reading gigabytes; None for a hub name."""
    path = _local_path(config)
    files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    seen = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16] if seen else None


def _source(config: Settings) -> tuple[str, dict[str, str]]:
    path, folder = config.model.path, _local_path(config)
    if folder.suffix == ".gguf" and folder.is_file():
        return str(folder.parent), {"gguf_file": folder.name}
    if folder.is_dir():
        if not (folder / "config.json").exists():
            expected = "expected a Hugging Face model folder"
            raise UserError(f"model.path: the folder {folder} holds no config.json; {expected}")
        return str(folder), {}
    if folder.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
        raise UserError(f"model.path: {path}: no such model folder (a hub model is named owner/name)")
    _ask_hub(path)
    return path, {}


@cache
def _ask_hub(name: str) -> None:
    """Ask the hub once, and wait a few seconds: transformers would ask for many files, each several times."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    advice = "check the spelling (owner/name), or give the folder of a model on this machine"
    try:
        if try_to_load_from_cache(name, "config.json") is None:
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=HUB_SECONDS)
        return
    except errors.EntryNotFoundError:  # there, without such a file: transformers says what it lacks
        return
    except errors.GatedRepoError:
        problem, advice = "is gated on the hub", "accept its terms there and log in: hf auth login"
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        problem = "neither a folder here nor a model on the hub that you may see"
    except Exception as error:  # no network, a proxy, a server in trouble: each library has its own
        problem = f"no such folder here, and the hub cannot be asked ({first_line(error)})"
    raise UserError(f"model.path: {name}: {problem}; {advice}")


def check_quantized(config: Settings) -> None:
    """A UserError where `model.quantize` asks for what this machine or another setting does not allow."""
    kind = config.model.quantize
    if kind == "none":
        return
    if not torch.cuda.is_available():
        raise UserError(f"model.quantize: {kind} needs a GPU, and torch sees none; --set model.quantize=none")
    both = "leave out one of the two settings"
    if Path(config.model.path).suffix == ".gguf":
        advice = "name the model's folder or hub id in model.path"
        raise UserError(f"model.quantize: a GGUF file cannot be loaded in {kind}; {advice}")
    if config.rollout.merge:
        raise UserError(f"rollout.merge: an adapter cannot be merged into weights in {kind}; {both}")
    if config.train.shard:
        raise UserError(f"train.shard: weights in {kind} cannot be split among processes; {both}")
    if find_spec("bitsandbytes") is None:
        raise UserError(f"model.quantize: {kind} needs bitsandbytes: pip install 'smopd[quantized]'")


def _quantization_options(config: Settings, device: torch.device | str) -> dict[str, Any]:
    check_quantized(config)
    if config.model.quantize == "none":
        return {}
    from transformers import BitsAndBytesConfig

    bits: dict[str, Any] = {"load_in_8bit": True}
    if config.model.quantize == "nf4":
        bits = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        bits["bnb_4bit_compute_dtype"] = getattr(torch, config.model.dtype)
    return {"quantization_config": BitsAndBytesConfig(**bits), "device_map": {"": torch.device(device)}}


@contextmanager
def _explain_failures(config: Settings) -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    path = config.model.path
    try:
        yield
    except (UserError, MemoryError, RecursionError):
        raise
    except Exception as error:  # whatever transformers and its readers raise at files that are not sound
        reason = first_line(error)
        if not isinstance(error, OSError | ValueError | ImportError):
            reason = f"{type(error).__name__}: {reason}"
        if path.endswith(".gguf"):
            reason = f"not a whole GGUF file of a model that transformers knows ({reason})"
        if "trust_remote_code" in str(error) or "custom code" in reason:
            reason = "it brings code of its own, and smopd runs none; use a model that transformers knows"
        raise UserError(f"model.path: {path}: cannot be loaded: {reason}") from None


def _renderer(config: Settings, tokenizer: Any, generation: GenerationConfig | None, model: Any) -> Renderer:
    """`model`: its config, which may say neither how many embeddings nor which context it has."""
    ends = _as_list(generation.eos_token_id if generation else None) or _as_list(model.eos_token_id)
    text, limit = model.get_text_config(), config.engine.max_length
    length = context_length(text)
    if config.engine.kind == "vllm" and limit:
        length = min(length or limit, limit)
    return Renderer(tokenizer, config.chat.thinking, ends, int(getattr(text, "vocab_size", 0)), length)


def context_length(model: Any) -> int:
    """The tokens that a model's positions go to, from its config; 0 if that does not say."""
    length = getattr(model, "max_position_embeddings", None) or 0
    rope = getattr(model, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("linear", "dynamic", "yarn"):  # others count it in already
        trained = rope.get("original_max_position_embeddings", length)
        length = max(length, int(rope.get("factor", 1) * trained))
    return int(length)


def _as_list(value: int | list[int] | None) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)
