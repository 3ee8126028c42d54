"""Small random models of two families, and conversations for them: what the plans are measured against."""

import random

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from smopd.scoring.tree import PrefixTree

Sequences = list[tuple[list[int], list[int]]]


def body(
    name: str, width: int = 256, layers: int = 3, vocabulary: int = 600, narrow: bool = False
) -> PreTrainedModel:
    """Qwen3: grouped heads wider than the model, norms on queries and keys, tied. Llama: none of that."""
    if name == "qwen3":
        return Qwen3ForCausalLM(
            Qwen3Config(
                hidden_size=width, intermediate_size=width if narrow else 3 * width, num_hidden_layers=layers,
                num_attention_heads=8, num_key_value_heads=2, head_dim=width // 4, vocab_size=vocabulary,
                tie_word_embeddings=True,
            )
        )  # fmt: skip
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=width, intermediate_size=width if narrow else 8 * width // 3,
            num_hidden_layers=layers, num_attention_heads=8, num_key_value_heads=4, vocab_size=vocabulary,
        )
    )  # fmt: skip


def branching(turns: int = 4, seed: int = 0, scale: int = 1, vocabulary: int = 600) -> Sequences:
    """Contexts along one trunk, a reply hanging from each: a conversation whose template renders the history
    anew.
    """
    draw = random.Random(seed)

    def some(length: int) -> list[int]:
        return [draw.randrange(1, vocabulary) for _ in range(length)]

    trunk, sequences = some(40 * scale), []
    for _ in range(turns):
        trunk = trunk + some(25 * scale)
        sequences.append((trunk + some(5), some(30 * scale)))
        trunk = trunk + some(32 * scale)
    return sequences


def length(sequences: Sequences) -> int:
    """Packed tokens."""
    return len(PrefixTree.pack([[*c, *r] for c, r in sequences]).input_ids)
