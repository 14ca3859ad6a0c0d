"""The core of tokenmill: words, counts, merges, and the tokenizer they make. No Beam, no settings files."""

from bpe_core.merging.merges import Merges, learn_merges
from bpe_core.merging.settings import MergeSettings
from bpe_core.pretokenize.pre_tokenizer import PATTERNS, PreTokenizer
from bpe_core.pretokenize.word_counting import count_words
from bpe_core.tokenizer import Tokenizer

__all__ = ["PATTERNS", "MergeSettings", "Merges", "PreTokenizer", "Tokenizer", "count_words", "learn_merges"]
