"""The engine of vLLM inside this process: one GPU samples and trains."""

import gc
import inspect
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from smopd.devices import free_cache
from smopd.errors import UserError
from smopd.models.adapter_files import Tensors
from smopd.models.adapters import StudentAdapter
from smopd.models.loading import model_source
from smopd.rollout import engine as engines
from smopd.rollout.engine import Dialogue, Engine, ReplyRequest, Sampled, Sampling, SaveAdapter, Usage, send
from smopd.rollout.vllm_shared import AdapterStore, ReplyReader, UnusableReply, max_rank, read_arguments
from smopd.seeds import derive
from smopd.settings import Settings

SETTINGS = {
    # Not in a child: no fork survives the trainer's CUDA context, and Ctrl-C would end it while it saves.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for results
}
# Its warnings are about its own insides; no usage statistics leave this machine unasked.
DEFAULTS = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}

# What the reader of a folder is told and the reader of tensors need not know.
OF_FOLDERS = {"lora_dir", "expected_lora_modules", "moe_ep_spec"}


class VLLMEngine(Engine):
    """Samples with vLLM from the adapter of the last `refresh`; `rank`: the largest, 0 for the base alone."""

    traits = engines.TRAITS["vllm"]

    def __init__(self, config: Settings, end_ids: Sequence[int], vocabulary: int, rank: int = 0) -> None:
        self.usage = Usage()
        self._replies = ReplyReader(end_ids, vocabulary)
        self._folder = TemporaryDirectory(prefix="smopd-vllm-")
        self._store = AdapterStore(Path(self._folder.name), Path(self._folder.name))
        self._adapter: Path | None = None
        self._request: Any = None
        self._swaps, self._asleep = 0, False
        self._names = count()
        settings: dict[str, Any] = {
            "model": model_source(config), "dtype": config.model.dtype,
            "gpu_memory_utilization": config.engine.memory, "max_model_len": config.engine.max_length or None,
            "enable_prefix_caching": True, "use_tqdm_on_load": False,
            "seed": derive(config.seed, "vllm") % 2**31,
            "logprobs_mode": "raw_logprobs",  # before temperature, top-k and top-p: what training computes
            "generation_config": "vllm",  # no sampling defaults of the model's own
            "trust_remote_code": False,
        }  # fmt: skip
        if rank:
            settings |= {"enable_lora": True, "max_lora_rank": max_rank(rank), "max_loras": 1}
        os.environ.update(SETTINGS)
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        with _stdout_to_stderr(), _preserve_threads(), _preserve_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside vLLM are not the user's
            vllm = _import_vllm()
            words = config.engine.args
            known = {field.name for field in fields(vllm.EngineArgs)} if words else set()
            further = read_arguments(words, known, settings.keys())
            on_cpu = vllm.platforms.current_platform.is_cpu()
            self._vllm, self._sleeps = vllm, config.engine.sleep and not on_cpu
            # On a CPU there is nothing to capture, and compiling takes longer than a small run.
            settings |= {"enable_sleep_mode": self._sleeps, "enforce_eager": on_cpu} | further
            try:
                self._llm = vllm.LLM(**settings)
            except (ValueError, RuntimeError, OSError, vllm.exceptions.VLLMError) as error:
                self._folder.cleanup()
                hint = "its share of the GPU, engine.max_length the longest context it makes room for"
                problem = f"vLLM does not start: {str(error).strip()}\nengine.memory is {hint}"
                raise UserError(f'engine.kind = "vllm": {problem}') from None
            self._handed = _tensors_by_folder(self._llm) if rank else None

    generate = engines.generate_by_conversing

    def converse(self, dialogues: Sequence[Dialogue], sampling: Sampling) -> None:
        """vLLM's scheduler takes a conversation's next turn at once, and finds the shared prefixes itself."""
        self._wake_up()
        engine, asked = self._llm.llm_engine, dict[str, tuple[Dialogue, ReplyRequest]]()
        final = self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY

        def ask(dialogue: Dialogue, reply: Sampled | None) -> None:
            if request := send(dialogue, reply):
                name, prompt = str(next(self._names)), {"prompt_token_ids": request.prompt}
                options = self._replies.fields(sampling, request)
                params = self._vllm.SamplingParams(**options, detokenize=False, output_kind=final)
                asked[name] = dialogue, request
                engine.add_request(name, prompt, params, lora_request=self._request)

        try:
            with _preserve_random_state():
                for dialogue in dialogues:
                    ask(dialogue, None)
                while asked:
                    for output in engine.step():
                        if output.finished:
                            dialogue, request = asked.pop(output.request_id)
                            ask(dialogue, self._read(output, request))
        except BaseException as error:
            # What was asked for and did not come must not come back among the next replies.
            engine.abort_request(list(engine.output_processor.request_states), internal=True)
            if isinstance(error, ValueError | self._vllm.exceptions.VLLMClientError):
                hint = "engine.max_length bounds context and reply"
                raise UserError(f"vLLM refuses to sample: {error}\n{hint}") from None
            raise

    def _read(self, output: Any, request: ReplyRequest) -> Sampled:
        assert output.prompt_token_ids == request.prompt, "a reply to another prompt"
        (completion,) = output.outputs
        steps = zip(completion.token_ids, completion.logprobs, strict=True)
        logps = [of_step[token].logprob for token, of_step in steps]
        self.usage.add(len(request.prompt), output.num_cached_tokens or 0)
        try:
            return self._replies.read(completion.token_ids, logps, completion.finish_reason, request.limit)
        except UnusableReply as error:
            raise UserError(f"vLLM gave a reply that cannot be used: {error}") from None

    def refresh(self, version: int, save: SaveAdapter) -> None:
        """Load the adapter, drop the one before and everything computed with it."""
        self._wake_up()
        old, new = self._adapter, self._write(version, save)
        engine = self._llm.llm_engine
        if self._request is not None:
            engine.remove_lora(self._request.lora_int_id)
        self._swaps += 1
        # Set before it is loaded: should that fail, nothing is sampled from the base by mistake.
        self._request = self._vllm.lora.request.LoRARequest(new.name, self._swaps, str(new))
        self._adapter = new
        try:
            engine.add_lora(self._request)
        except (ValueError, RuntimeError, self._vllm.exceptions.VLLMError) as error:
            raise UserError(f"vLLM does not load the adapter: {str(error).strip()}") from None
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not reset its prefix cache")
        self._store.drop(old)

    def _write(self, version: int, save: SaveAdapter) -> Path:
        """The adapter's folder; a student's tensors go through memory where vLLM takes them."""
        if self._handed is None or not isinstance(save, StudentAdapter):
            return self._store.write(version, save)
        new = self._store.write(version, save.write_config)
        self._handed.clear()  # of what was never taken, because vLLM refused it
        self._handed[str(new)] = save.tensors()
        return new

    def sleep(self) -> None:
        """Weights to main memory, keys and values away; the next `refresh` brings them back."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def close(self) -> None:
        if self._llm is not None:
            with _stdout_to_stderr():
                self._llm.llm_engine.engine_core.shutdown()
            self._llm = self._request = self._adapter = None
            gc.collect()
            free_cache()
        self._store.close()
        self._folder.cleanup()

    def _wake_up(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False


def _import_vllm() -> Any:
    try:
        import vllm
        import vllm.exceptions
        import vllm.lora.request
        import vllm.platforms
    except ImportError as error:
        message = f"vLLM cannot be imported ({error}): pip install 'smopd[vllm]'"
        raise UserError(f'engine.kind = "vllm": {message}') from None
    # It may have been imported before, with its own idea of where to log.
    for handler in logging.getLogger("vllm").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
    return vllm


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What libraries print in here, in C too, goes to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _preserve_threads() -> Iterator[None]:
    """vLLM's CPU worker replaces torch.set_num_threads and sets what child processes load first."""
    set_num_threads, count = torch.set_num_threads, torch.get_num_threads()
    names = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LOCAL_WORLD_SIZE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != count:
            torch.set_num_threads(count)
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(kept)


@contextmanager
def _preserve_random_state() -> Iterator[None]:
    """vLLM seeds and draws from the random states of the process, which are the trainer's."""
    python, numpy = random.getstate(), np.random.get_state()
    used = torch.cuda.is_available() and torch.cuda.is_initialized()
    devices = [torch.cuda.current_device()] if used else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _tensors_by_folder(llm: Any) -> dict[str, Tensors] | None:
    """A dictionary that vLLM looks into before it reads an adapter's folder: its LoRA manager asks a class of
    its own to read that, for which `_install` puts a subclass. None if this vLLM has no place for that.
    """
    handed: dict[str, Tensors] = {}
    try:
        (taken,) = llm.collective_rpc(lambda worker: _install(worker.model_runner.lora_manager, handed))
    except (AttributeError, TypeError, ValueError):
        return None
    return handed if taken else None


def _install(manager: Any, handed: dict[str, Tensors]) -> bool:
    """False where the manager's parts are not those of vLLM 0.32."""
    reader: Any = manager._lora_model_cls
    parameters = set(inspect.signature(reader.from_local_checkpoint).parameters)
    if parameters - OF_FOLDERS != set(inspect.signature(reader.from_lora_tensors).parameters) - {"tensors"}:
        return False

    class FromMemory(reader):
        @classmethod
        def from_local_checkpoint(cls, lora_dir: str, expected_lora_modules: set[str], **options: Any) -> Any:
            tensors = handed.pop(lora_dir, None)
            if tensors is None:
                return super().from_local_checkpoint(lora_dir, expected_lora_modules, **options)
            modules = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in tensors}
            if unknown := sorted(modules - set(expected_lora_modules)):
                raise ValueError(f"vLLM serves no adapter on {', '.join(unknown)} of this model")
            options.pop("moe_ep_spec", None)
            return super().from_lora_tensors(tensors=tensors, **options)

    manager._lora_model_cls = FromMemory
    return True
