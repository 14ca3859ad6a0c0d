"""The ids of a tokenizer beside another library's, document by document."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bpe_core import Tokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.formats.hugging_face_layout import to_hugging_face
from bpe_core.formats.tiktoken import write_tiktoken
from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from pipelines.reading.documents import read_corpus
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

Library = Literal["hf", "tiktoken"]

_SHOWN = 30  # characters of a text, and ids, around the first difference


def num_shared(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Returns how many entries two sequences (also of bytes) share before they begin to differ, or one ends.

    >>> num_shared([7, 8, 9], [7, 9]), num_shared(b"ab", b"abc")
    (1, 2)
    """
    pairs = zip(ours, theirs, strict=False)
    return next((place for place, (mine, its) in enumerate(pairs) if mine != its), min(len(ours), len(theirs)))


@dataclass(frozen=True)
class Difference:
    """The first place where two libraries give other ids for a document."""

    path: str
    row: int
    text: str
    ours: list[int]
    theirs: list[int]

    def describe(self, tokenizer: Tokenizer) -> str:
        """Returns the place as text, words, ids and code points."""
        same = num_shared(self.ours, self.theirs)
        before = len(tokenizer.decode(self.ours[:same]))
        near = self.text[max(0, before - _SHOWN) : before + _SHOWN]
        after = self.text[before : before + _SHOWN]
        return "\n".join(
            [
                f"{self.path}, row {self.row}: the first difference is at id {same}, about character {before}",
                f"  text         {near!r}",
                f"  words        {tokenizer.pre_tokenizer.split(near)}",
                f"  ours         {self.ours[same : same + 10]} {tokenizer.tokens(self.ours[same : same + 10])}",
                f"  theirs       {self.theirs[same : same + 10]}",
                f"  code points  {' '.join(f'U+{ord(character):04X}' for character in after)}",
            ]
        )


@dataclass(frozen=True)
class Comparison:
    """How many documents and ids were compared, in how many documents they differ, and the first of those."""

    documents: int
    ids: int
    different: int
    first: Difference | None

    @property
    def line(self) -> str:
        """The numbers as one line of console output."""
        return f"{self.documents:,} documents, {self.ids:,} ids, {self.different:,} documents with other ids"


def compare_ids(tokenizer: Tokenizer, library: Library, corpus: Corpus, reference: str | None = None) -> Comparison:
    """Compares the ids of every document of a corpus with another library's; special spellings are letters in both.

    Args:
        library: `hf`: Hugging Face tokenizers. `tiktoken`: by this tokenizer's pattern and its ranks.
        reference: for `hf`, the `tokenizer.json` to compare with, instead of this tokenizer's own.

    Raises:
        NotExpressibleError: the library cannot hold this tokenizer.
        ModuleNotFoundError: the library is not installed.
    """
    encode = _hugging_face(tokenizer, reference) if library == "hf" else _tiktoken(tokenizer)
    documents = ids = different = 0
    first = None
    for batch in read_corpus(corpus):
        texts = batch.texts.to_pylist()
        ours = tokenizer.encode_batch(batch.texts).to_pylist()
        for number, (text, mine, theirs) in enumerate(zip(texts, ours, encode(texts), strict=True)):
            documents += 1
            ids += len(mine)
            if mine != theirs:
                different += 1
                first = first or Difference(batch.path, int(batch.rows[number]), text, mine, theirs)
    return Comparison(documents, ids, different, first)


_Encode = Callable[[Sequence[str]], list[list[int]]]


def _hugging_face(tokenizer: Tokenizer, reference: str | None) -> _Encode:
    import tokenizers  # Here, for tokenmill runs without it.

    if reference is None:
        to_hugging_face(tokenizer.model)  # Raises where the file is in our own layout.
    text = files.read_text(reference) if reference else tokenizer.files()[TOKENIZER_FILE]
    try:
        peer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # The library has no class of its own for it.
        name = reference or TOKENIZER_FILE
        raise ValueError(f"{name} is no file that the library tokenizers can read: {error}") from error
    peer.encode_special_tokens = True
    return lambda texts: [e.ids for e in peer.encode_batch_fast(list(texts), add_special_tokens=False)]


def _tiktoken(tokenizer: Tokenizer) -> _Encode:
    import tiktoken

    if (
        len(tokenizer.pre_tokenizer.expressions) > 1
        or tokenizer.pre_tokenizer.unicode != "none"
        or tokenizer.pre_tokenizer.lowercase
    ):
        raise NotExpressibleError("tiktoken cuts by one expression and normalises nothing")
    lines = [line.split(" ") for line in write_tiktoken(tokenizer.model).splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    peer = tiktoken.Encoding(
        "verify", pat_str=tokenizer.pre_tokenizer.expressions[0], mergeable_ranks=ranks, special_tokens={}
    )
    return lambda texts: peer.encode_ordinary_batch(list(texts), num_threads=1)
