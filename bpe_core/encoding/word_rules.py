"""What each family of tokenizers has to say about a word: the interface between `word_encoder` and the families.

The *rules* of a family, such as byte-pair encoding, are a NamedTuple of arrays. The functions here have an
implementation for each type of rules. `word_encoder` calls them for the words that it has not met before; all families
share its word cache. The functions take part in kernels, see `bpe_core.kernels.function_by_type`.
"""

from functools import singledispatch
from typing import Any

from bpe_core.kernels import Int32s, Int64s, UInt8s, function_by_type


@singledispatch
def make_scratch(rules: Any, max_bytes: int) -> Any:
    """Returns the memory, a tuple of arrays, in which the rules work on a word of up to `max_bytes` bytes.

    Each thread has its own. Words of up to `MAX_CACHED_WORD` bytes always have room in it.
    """
    raise NotImplementedError(type(rules))


@function_by_type
def start_word(rules: Any, scratch: Any, data: UInt8s, first: Any, stop: Any, symbols: Int32s, at: Any) -> Any:
    """Writes the symbols of the word `data[first:stop]` to `symbols[at:]`; returns how many there are.

    The word has at most `MAX_CACHED_WORD` bytes, and one symbol more than bytes at most. Symbols are ids, or whatever
    `finish_words` replaces by ids.
    """


@function_by_type
def finish_words(rules: Any, scratch: Any, symbols: Int32s, starts: Int64s, sizes: Int64s, num_words: Any) -> None:
    """Replaces the symbols of words by their ids.

    Args:
        rules: the rules.
        scratch: from `make_scratch`.
        symbols: the words. Word `w` is `symbols[starts[w] : starts[w] + sizes[w]]`. The place before each word is free,
            and so are places behind it: together with the word they are two more than the word has bytes.
        starts: where each word starts in `symbols`.
        sizes: how many symbols each word has; overwritten with its number of ids.
        num_words: how many words there are.
    """


@function_by_type
def encode_long_word(rules: Any, scratch: Any, data: UInt8s, first: Any, stop: Any, ids: Int32s, at: Any) -> Any:
    """Writes the ids of the word `data[first:stop]`, which may be of any size, to `ids[at:]`; returns how many.

    `ids` has room for one more than the word has bytes.
    """
