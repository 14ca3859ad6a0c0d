"""The algorithmic core of tokenmill: learns BPE merges, and encodes text with them. Needs neither Beam nor pydantic.

Most users need only `Tokenizer`:

>>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
>>> tokenizer.encode("hugs")
[257, 115]
>>> tokenizer.decode([257, 115])
'hugs'
>>> tokenizer.save("tokenizers/english")  # doctest: +SKIP
>>> tokenizer = Tokenizer.load("tokenizers/english")  # doctest: +SKIP

`Tokenizer.train` is made of steps that can be called one by one, for instance to count words once and to learn several
tokenizers from them:

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
