"""Prints what `DEFAULTS` of smopd/planning/averages.py holds.

    python tools/average_lengths.py DATA TOKENIZER

DATA is a data file (LiC math for the defaults), TOKENIZER the folder of a tokenizer with a chat template.
"""

import sys

from transformers import AutoTokenizer

from smopd.chat import Renderer
from smopd.data import load_examples
from smopd.planning.averages import measure

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/average_lengths.py DATA TOKENIZER")
    print(measure(load_examples(sys.argv[1]), Renderer(AutoTokenizer.from_pretrained(sys.argv[2]))))
