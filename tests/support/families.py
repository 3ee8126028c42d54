"""Small random bodies of chat model families, each with its template: what `smopd train` meets in a model
folder of that family.

Templates are the families' own as trl ships them, or written down here from their model cards. The tokenizer
is the pocket model's (byte-level, so any text encodes) with the family's special tokens; vocabularies are
padded beyond it, as real ones are.
"""

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from smopd.pocket import MODEL_DIR

PADDED = 896  # the tokenizers have some 850 entries

# https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# https://huggingface.co/mistralai/Mistral-7B-Instruct-v0.3, without its tools: the system prompt stands in
# the last user turn
MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
    "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}"
    "{{- bos_token }}{%- for message in loop_messages %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('After the optional system message, conversation roles must alternate') }}"
    "{%- endif %}"
    "{%- if message['role'] == 'user' %}{%- if loop.last and system_message is defined %}"
    "{{- '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }}{%- else %}"
    "{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}"
    "{{- ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
# https://huggingface.co/allenai/OLMo-2-0425-1B-Instruct
OLMO2 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<|system|>\n' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'assistant' %}"
    "{% if not loop.last %}{{ '<|assistant|>\n' + message['content'] + eos_token + '\n' }}{% else %}"
    "{{ '<|assistant|>\n' + message['content'] + eos_token }}{% endif %}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}"
)

CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
GEMMA = ("<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>")
CAPS = {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 0.5}  # small ones, so that they bite


@dataclass(frozen=True)
class Family:
    """A body, its template (a file of trl's, or the text), the end of its turns, and its special tokens."""

    config: type[PreTrainedConfig]
    template: str
    end: str
    specials: tuple[str, ...]
    shape: dict[str, Any] = field(default_factory=dict)
    bos: str = ""
    settings: tuple[str, ...] = ()
    packed: bool = True  # else the plain path and the stock engine serve it

    def save(self, folder: Path) -> Path:
        """A model folder of this family."""
        tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
        tokenizer.add_special_tokens(
            {"additional_special_tokens": [s for s in self.specials if s != self.end]}
        )
        tokenizer.add_special_tokens({"eos_token": self.end, **({"bos_token": self.bos} if self.bos else {})})
        tokenizer.chat_template = trl_template(self.template) if len(self.template) < 20 else self.template
        tokenizer.save_pretrained(folder)
        assert len(tokenizer) < PADDED
        small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "vocab_size": PADDED, "initializer_range": 0.1, "pad_token_id": 0,
                 "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}  # fmt: skip
        torch.manual_seed(0)
        config = self.config(**small | self.shape)
        MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).save_pretrained(folder)
        return folder


def trl_template(name: str) -> str:
    """A family's template as trl ships it; the test is skipped where trl is absent."""
    spec = find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("needs trl for the templates of other families")
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


LLAMA3 = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
INST = ("<s>", "</s>", "[INST]", "[/INST]")
JOINED = ('lora.targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]',)

TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
WINDOW = {"head_dim": 16, "sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]}
PHI3 = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
NINE_HEADS = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}

FAMILIES = {
    "qwen3": Family(Qwen3Config, "qwen3", "<|im_end|>", CHATML, {"head_dim": 16, **TIED}),
    "qwen3-untied": Family(Qwen3Config, "qwen3", "<|im_end|>", CHATML, {"head_dim": 32, **UNTIED}),
    "qwen2.5": Family(Qwen2Config, "qwen2_5", "<|im_end|>", CHATML, TIED),
    "llama3": Family(LlamaConfig, "llama3", "<|eot_id|>", LLAMA3, UNTIED, LLAMA3[0]),
    "smollm2": Family(LlamaConfig, SMOLLM2, "<|im_end|>", CHATML, NINE_HEADS | TIED, CHATML[0]),
    "mistral": Family(MistralConfig, MISTRAL, "</s>", INST, {"sliding_window": None}, "<s>"),
    "mistral-window": Family(
        MistralConfig, MISTRAL, "</s>", INST, {"sliding_window": 24}, "<s>", packed=False
    ),
    "gemma2": Family(Gemma2Config, "gemma", "<end_of_turn>", GEMMA, {"head_dim": 16, **CAPS}, "<bos>"),
    "gemma3": Family(Gemma3TextConfig, "gemma3", "<end_of_turn>", GEMMA, {"head_dim": 16}, "<bos>"),
    "gemma3-window": Family(
        Gemma3TextConfig, "gemma3", "<end_of_turn>", GEMMA, WINDOW, "<bos>", packed=False
    ),
    "phi3": Family(Phi3Config, "phi3", "<|end|>", PHI3, {"num_key_value_heads": 4}, settings=JOINED),
    "olmo2": Family(Olmo2Config, OLMO2, "<|endoftext|>", ("<|endoftext|>",), bos="<|endoftext|>"),
}


def tiny_gguf(path: Path) -> Path:
    """A Llama of the smallest kind as a GGUF file, with the pocket tokenizer and template."""
    gguf = pytest.importorskip("gguf")
    saved = json.loads((MODEL_DIR / "tokenizer.json").read_text())
    vocabulary, special = saved["model"]["vocab"], {token["content"] for token in saved["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    d, ff, kv, layers = 64, 96, 32, 2
    writer = gguf.GGUFWriter(path, "llama")
    numbers = {"context_length": 2048, "embedding_length": d, "block_count": layers,
               "feed_forward_length": ff, "head_count": 4, "head_count_kv": 2, "layer_norm_rms_eps": 1e-6,
               "rope_freq_base": 1e4, "vocab_size": len(tokens), "file_type": 0, "tokenizer_model": "gpt2",
               "token_list": tokens, "token_types": [3 if t in special else 1 for t in tokens],
               "token_merges": [m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]],
               "eos_token_id": 1, "bos_token_id": 1, "pad_token_id": 0,
               "chat_template": (MODEL_DIR / "chat_template.jinja").read_text()}  # fmt: skip
    for name, value in numbers.items():
        getattr(writer, f"add_{name}")(value)
    drawn = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), d), "output_norm": (d,)}
    for i in range(layers):
        layer = {"attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d), "attn_output": (d, d),
                 "ffn_gate": (ff, d), "ffn_up": (ff, d), "ffn_down": (d, ff), "attn_norm": (d,),
                 "ffn_norm": (d,)}  # fmt: skip
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    for name, shape in shapes.items():
        weight = drawn.normal(size=shape) * 0.1 if len(shape) > 1 else np.ones(shape)
        writer.add_tensor(f"{name}.weight", weight.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
