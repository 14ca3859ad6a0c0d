"""The interface of everything that normalizes texts and splits them into words, whatever the family of tokenizers."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.kernels import Int64s, UInt8s

Booleans = npt.NDArray[np.bool_]


class WordEnds(NamedTuple):
    """The bounds of the words in a batch of texts, as indexes in the texts' bytes.

    The bounds of the words in text `t` are `ends[first_end[t] : first_end[t + 1]]`. For the texts `"a b"` and `"cd"`:

        stride 1, words "a", " ", "b", "cd"    ends 1 2 3 5        first_end 0 3 4
        stride 2, words "a", "b", "cd"         ends 0 1 2 3 3 5    first_end 0 4 6

    Attributes:
        ends: int64. With stride 1, the index at which each word ends; the next word starts there. With stride 2, where
            each word starts and where it ends, in turn.
        first_end: int64, one more than texts: the number of items of `ends` before each text.
        stride: 1 if the words of a text join to that text, 2 if there may be gaps between them.
    """

    ends: Int64s
    first_end: Int64s
    stride: int


class SplitBatch(NamedTuple):
    """A batch of texts, split into words.

    Attributes:
        data: the bytes of all texts, in which the words lie.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.
        word_ends: the bounds of the words.
    """

    data: UInt8s
    offsets: Int64s
    word_ends: WordEnds

    def list_words(self) -> list[list[str]]:
        """Returns the words of each text."""
        bounds, first_end, stride = self.word_ends
        words = []
        for text, start in enumerate(self.offsets[:-1].tolist()):
            own = bounds[first_end[text] : first_end[text + 1]].tolist()
            starts, stops = ([start, *own], own) if stride == 1 else (own[::2], own[1::2])
            words.append([self.data[at:stop].tobytes().decode() for at, stop in zip(starts, stops, strict=False)])
        return words


@runtime_checkable  # Beam checks the arguments of its steps.
class TextSplitter(Protocol):
    """Normalizes texts and splits them into words.

    An encoder first finds the added tokens of a text, normalizes what lies between them (`normalize_batch`), finds
    further added tokens in that, and splits what is left, the *pieces* of the text, into words (`split_pieces`).
    """

    def describe_normalizer(self) -> Any:
        """Returns a JSON value that is equal only for splitters that normalize all texts alike."""

    def normalize(self, text: str) -> str:
        """Returns the normalized text."""

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns an Arrow array (`large_string`) of the normalized texts; a null stays a null.

        Raises:
            ValueError: a text is not UTF-8.
        """

    def keep_first_characters(self, texts: pa.Array) -> Booleans:
        """Returns for each text whether it still has its first character when it is normalized.

        A splitter for which this makes no difference may return True for all.
        """

    def split_pieces(self, pieces: pa.Array, is_first: Booleans) -> SplitBatch:
        """Splits pieces of text, which are already normalized; their bytes may be changed while they are split.

        Args:
            pieces: an array of strings; a null has no words.
            is_first: for each piece whether its text starts with it, and has kept its first character.
        """

    def split(self, text: str) -> list[str]:
        """Returns the words of a text, which is not normalized yet."""


def split_one_text(splitter: TextSplitter, text: str) -> list[str]:
    """Returns the words of a text that is already normalized and has no added tokens."""
    batch: Any = pa.array([text], pa.large_string())
    return splitter.split_pieces(batch, np.ones(1, bool)).list_words()[0]
