"""Splits texts as files in Hugging Face's layout ask for: one normalizer, and after it steps that split words."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.kernels import flatten_bytes
from bpe_core.pretokenize.metaspace import MetaspaceStep
from bpe_core.pretokenize.pre_tokenizer import check_utf8, repair_surrogates
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch, split_one_text
from bpe_core.pretokenize.word_steps import WordStep, start_words


@runtime_checkable
class TextNormalizer(Protocol):
    """Normalizes texts."""

    def describe(self) -> Any:
        """Returns a JSON value that is equal only for normalizers that normalize all texts alike."""

    def normalize(self, text: str) -> str:
        """Returns the normalized text."""

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns a `large_string` array of the normalized texts; a null stays a null.

        Args:
            texts: a `large_string` array of valid UTF-8.
        """


@dataclass(frozen=True)
class StepSplitter:
    """Normalizes texts and splits them into words by one step after the other; see `TextSplitter`.

    Attributes:
        normalizer: the normalizer; None leaves texts as they are.
        word_steps: the steps, in order. Before the first, each piece of a text is one word.
    """

    normalizer: TextNormalizer | None
    word_steps: tuple[WordStep, ...]

    def describe_normalizer(self) -> Any:
        """Returns the description of the normalizer."""
        return ["steps", None if self.normalizer is None else self.normalizer.describe()]

    def normalize(self, text: str) -> str:
        """Returns the normalized text."""
        return text if self.normalizer is None else self.normalizer.normalize(text)

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns a `large_string` array of the normalized texts; raises ValueError if a text is not UTF-8."""
        texts = check_utf8(texts)
        return texts if self.normalizer is None else self.normalizer.normalize_batch(texts)

    def keep_first_characters(self, texts: pa.Array) -> Booleans:
        """Returns for each text whether it still has its first character when it is normalized.

        The library prepends to the first word of a text only if that word starts with the text's first character.
        """
        schemes = [step.prepend_scheme for step in self.word_steps if isinstance(step, MetaspaceStep)]
        if self.normalizer is None or "first" not in schemes:
            return np.ones(len(texts), bool)
        firsts = pc.utf8_slice_codeunits(check_utf8(texts), 0, 1).fill_null("").dictionary_encode()
        characters = pa.array([f"{one}a" for one in firsts.dictionary.to_pylist()] + ["a"], pa.large_string())
        *normalized, alone = self.normalizer.normalize_batch(characters).to_pylist()
        is_kept = np.array([one != alone for one in normalized], bool)
        kept: Booleans = is_kept[firsts.indices.to_numpy()]
        return kept

    def split_pieces(self, pieces: pa.Array, is_first: Booleans) -> SplitBatch:
        """Splits pieces of text, which are already normalized; see `TextSplitter`."""
        batch = start_words(*flatten_bytes(pieces))
        for step in self.word_steps:
            batch = step.split_words(batch, is_first)
        return batch

    def split(self, text: str) -> list[str]:
        r"""Returns the words of a text, which is not normalized yet.

        >>> from bpe_core.pretokenize.word_steps import PatternStep
        >>> StepSplitter(None, (PatternStep(r"\s", "Removed"), PatternStep(r"\p{N}"))).split("in 1984")
        ['in', '1', '9', '8', '4']
        """
        return split_one_text(self, self.normalize(repair_surrogates(text)))
