"""The core of tokenmill: words, counts, merges, and the tokenizer they make. No Beam, no settings files."""

from bpe_core.counting import count_words
from bpe_core.merges import Merges, learn_merges
from bpe_core.tokenizer import Tokenizer
from bpe_core.words import PATTERNS, Words

__all__ = ["PATTERNS", "Merges", "Tokenizer", "Words", "count_words", "learn_merges"]
