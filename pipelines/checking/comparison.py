"""Compares a tokenizer's ids with those of another library, document by document."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bpe_core import Tokenizer
from bpe_core.encoding.library_model import LibraryTokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.formats.hugging_face_layout import HUGGING_FACE_VERSION, to_hugging_face
from bpe_core.formats.lines import split_lines
from bpe_core.formats.tiktoken import write_tiktoken
from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from pipelines.reading.documents import read_corpus
from pipelines.running.remarks import list_remarks
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

Library = Literal["hf", "tiktoken"]

_NUM_CHARACTERS_SHOWN = 30  # Before and after the first difference.
_NUM_IDS_SHOWN = 10


def count_common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Returns the length of the common prefix of two lists of ids, or of two byte strings.

    >>> count_common_prefix([7, 8, 9], [7, 9]), count_common_prefix(b"ab", b"abc")
    (1, 2)
    """
    pairs = zip(ours, theirs, strict=False)
    return next((place for place, (mine, its) in enumerate(pairs) if mine != its), min(len(ours), len(theirs)))


@dataclass(frozen=True)
class Difference:
    """A document that the tokenizer and the other library encode differently.

    Attributes:
        path: the file of the document.
        row: its row in the file, from 0.
        ours: the tokenizer's ids.
        theirs: the other library's ids.
    """

    path: str
    row: int
    text: str
    ours: list[int]
    theirs: list[int]

    def describe(self, tokenizer: Tokenizer) -> str:
        """Returns the first difference, in lines: its place, the text around it, words, ids and code points."""
        same = count_common_prefix(self.ours, self.theirs)
        before = len(tokenizer.decode(self.ours[:same]))
        near = self.text[max(0, before - _NUM_CHARACTERS_SHOWN) : before + _NUM_CHARACTERS_SHOWN]
        after = self.text[before : before + _NUM_CHARACTERS_SHOWN]
        shown = slice(same, same + _NUM_IDS_SHOWN)
        return "\n".join(
            [
                f"{self.path}, row {self.row}: the first difference is at id {same}, about character {before}",
                f"  text         {near!r}",
                f"  words        {_describe_words(tokenizer, near)}",
                f"  ours         {self.ours[shown]} {tokenizer.tokens(self.ours[shown])}",
                f"  theirs       {self.theirs[shown]}",
                f"  code points  {' '.join(f'U+{ord(character):04X}' for character in after)}",
            ]
        )


def _describe_words(tokenizer: Tokenizer, text: str) -> str:
    return str(tokenizer.splitter.split(text)) if tokenizer.kind != "library" else "(the library does not return them)"


@dataclass(frozen=True)
class Comparison:
    """The result of comparing ids.

    Attributes:
        documents: the number of documents compared.
        ids: the number of the tokenizer's ids in them.
        different: the number of documents with different ids.
        first: the first of these, or None.
        counts: what `read_task` counted, such as documents that were left out.
    """

    documents: int
    ids: int
    different: int
    first: Difference | None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The numbers, and what was left out, as one line of console output."""
        numbers = f"{self.documents:,} documents, {self.ids:,} ids, {self.different:,} documents with different ids"
        return "; ".join([numbers, *list_remarks(self.counts)])


def compare_ids(tokenizer: Tokenizer, library: Library, corpus: Corpus, reference: str | None = None) -> Comparison:
    """Compares the ids of every document of a corpus with another library's.

    In both, a special token that is spelled out in a document is ordinary text.

    Args:
        tokenizer: the tokenizer to check.
        library: `hf` for Hugging Face tokenizers; `tiktoken` for tiktoken with this tokenizer's pattern and ranks.
        corpus: the documents to encode.
        reference: for `hf`, the `tokenizer.json` to compare with; this tokenizer's own if left out.

    Raises:
        NotExpressibleError: the library cannot represent this tokenizer.
        ModuleNotFoundError: the library is not installed.
    """
    encode = _load_hugging_face(tokenizer, reference) if library == "hf" else _load_tiktoken(tokenizer)
    documents = ids = different = 0
    first = None
    counts: Counter[str] = Counter()
    for batch in read_corpus(corpus, counts):
        texts = batch.texts.to_pylist()
        ours = tokenizer.encode_batch(batch.texts).to_pylist()
        for number, (text, mine, theirs) in enumerate(zip(texts, ours, encode(texts), strict=True)):
            documents += 1
            ids += len(mine)
            if mine != theirs:
                different += 1
                first = first or Difference(batch.path, int(batch.rows[number]), text, mine, theirs)
    return Comparison(documents, ids, different, first, counts)


_Encode = Callable[[Sequence[str]], list[list[int]]]


def load_library(tokenizer: Tokenizer, reference: str | None = None) -> LibraryTokenizer:
    """Returns Hugging Face's tokenizer of the file `reference`, or of the tokenizer's own `tokenizer.json`.

    Raises:
        NotExpressibleError: the library cannot represent this tokenizer.
        ModuleNotFoundError: the library is not installed.
    """
    if reference is None and tokenizer.has_merges:
        to_hugging_face(tokenizer.model)  # Raises an error if tokenizer.json has our own layout.
    text = files.read_text(reference) if reference else tokenizer.files()[TOKENIZER_FILE]
    content = json.loads(text)
    if not reference and content["version"] != HUGGING_FACE_VERSION:
        raise NotExpressibleError(f"the library has no layout for a tokenizer of kind {tokenizer.kind} from this file")
    try:
        return LibraryTokenizer(content)
    except ValueError as error:
        raise ValueError(f"{reference or TOKENIZER_FILE}: {error}") from error


def _load_hugging_face(tokenizer: Tokenizer, reference: str | None) -> _Encode:
    library = load_library(tokenizer, reference)
    return lambda texts: [list(ids) for ids in library.encode(texts, plain=True)]


def _load_tiktoken(tokenizer: Tokenizer) -> _Encode:
    import tiktoken

    if (
        len(tokenizer.pre_tokenizer.expressions) > 1
        or tokenizer.pre_tokenizer.unicode != "none"
        or tokenizer.pre_tokenizer.lowercase
        or tokenizer.pre_tokenizer.add_prefix_space
    ):
        raise NotExpressibleError("tiktoken splits text by one expression, and neither normalizes nor prefixes it")
    lines = [line.split(" ") for line in split_lines(write_tiktoken(tokenizer.model))]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    peer = tiktoken.Encoding(
        "verify", pat_str=tokenizer.pre_tokenizer.expressions[0], mergeable_ranks=ranks, special_tokens={}
    )
    return lambda texts: peer.encode_ordinary_batch(list(texts), num_threads=1)
