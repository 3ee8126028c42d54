"""The pocket model's tokenizer: byte-level BPE trained on the pocket world, with a chat template of its own.

Words and numbers below 1,000 are never cut across, so after training nearly every word and every number of
the world is one token; any other text still encodes, byte by byte if need be.
"""

from collections.abc import Iterable
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
PIECES = r" ?[A-Za-z_']+| ?[0-9]{1,3}| ?[^\sA-Za-z0-9_']+|\s+"
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Learn the merges and wrap the result as any Hugging Face tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    # Rare numbers would stay in two pieces; a few hundred copies of each put those of the world among the
    # first merges.
    numbers = (f" {n}" for n in range(100) for _ in range(400))
    tokenizer.train_from_iterator(chain(numbers, texts), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, extra_special_tokens=list(ROLES)
    )
    fast.chat_template = TEMPLATE
    fast.model_max_length = 2048
    return fast
