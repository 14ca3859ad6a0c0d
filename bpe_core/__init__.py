"""The algorithmic core of tokenmill: learns BPE merges, and encodes text with them. Needs neither Beam nor pydantic.

Everything is imported on first use. Most users need only `Tokenizer`:

>>> from bpe_core import Tokenizer
>>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
>>> tokenizer.encode("hugs")
[257, 115]
>>> tokenizer.decode([257, 115])
'hugs'
>>> tokenizer.save("tokenizers/english")  # doctest: +SKIP
>>> tokenizer = Tokenizer.load("tokenizers/english")  # doctest: +SKIP

`Tokenizer.train` is made of steps that can be called one by one, for instance to count words once and to learn several
tokenizers from them:

>>> from bpe_core import MergeSettings, PreTokenizer, count_words, learn_merges
>>> pre_tokenizer = PreTokenizer("gpt2")
>>> word_counts = count_words(["hug pug hugs"], pre_tokenizer)
>>> merges = learn_merges(word_counts, MergeSettings(num_merges=2))
>>> list(merges)
[(b'u', b'g'), (b'h', b'ug')]
>>> Tokenizer.from_merges(merges, pre_tokenizer=pre_tokenizer).tokenize("hugs")
[b'hug', b's']

`bpe_core.export.export_tokenizer` writes a tokenizer for other libraries; the modules of `bpe_core.measuring` measure
and audit one.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bpe_core.encoding.bpe_encoder import Encoded
    from bpe_core.encoding.model import NotExpressibleError
    from bpe_core.encoding.stream_decoder import StreamDecoder
    from bpe_core.merging.merges import Merges, learn_merges
    from bpe_core.merging.settings import MergeSettings
    from bpe_core.pretokenize.pre_tokenizer import PATTERNS, PreTokenizer
    from bpe_core.pretokenize.word_counting import count_words
    from bpe_core.tokenizer import Tokenizer

__all__ = [
    "PATTERNS",
    "Encoded",
    "MergeSettings",
    "Merges",
    "NotExpressibleError",
    "PreTokenizer",
    "StreamDecoder",
    "Tokenizer",
    "count_words",
    "learn_merges",
]

_HOME_OF_NAME = {
    "PATTERNS": "bpe_core.pretokenize.pre_tokenizer",
    "Encoded": "bpe_core.encoding.bpe_encoder",
    "MergeSettings": "bpe_core.merging.settings",
    "Merges": "bpe_core.merging.merges",
    "NotExpressibleError": "bpe_core.encoding.model",
    "PreTokenizer": "bpe_core.pretokenize.pre_tokenizer",
    "StreamDecoder": "bpe_core.encoding.stream_decoder",
    "Tokenizer": "bpe_core.tokenizer",
    "count_words": "bpe_core.pretokenize.word_counting",
    "learn_merges": "bpe_core.merging.merges",
}


def __getattr__(name: str) -> object:
    """Imports a public name on its first use."""
    if name not in _HOME_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
