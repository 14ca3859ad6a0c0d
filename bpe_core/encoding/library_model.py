"""Tokenizers that are not compiled here: the library Hugging Face tokenizers encodes and decodes for them.

The library (extra `hf`) is imported when such a tokenizer is made. Versions 0.21 to 1.0 are supported. The interface of
1.0 is smaller: it does not show the normalizer.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bpe_core.encoding.added_tokens import AddedToken, AddedTokenFinder, SpecialInText
from bpe_core.kernels import Int32s, Int64s
from bpe_core.pretokenize.pre_tokenizer import check_utf8
from bpe_core.pretokenize.text_splitter import Booleans, SplitBatch

_ENTRIES_LEFT_OUT = {"truncation": None, "padding": None}


class LibraryTokenizer:
    """Hugging Face's tokenizer of a `tokenizer.json`, whichever version of the library is installed.

    Args:
        content: the JSON content of the file; its truncation and padding are left out.

    Raises:
        ModuleNotFoundError: the library is not installed.
        ValueError: the library cannot read the content.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Loads the tokenizer."""
        self._content = {**content, **_ENTRIES_LEFT_OUT}
        self._load()

    def _load(self) -> None:
        # The library's threads would compete with ours and with Beam's workers.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import tokenizers
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the library tokenizers is not installed; install it: pip install tokenmill[hf]", name="tokenizers"
            ) from error
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json"
            file.write_text(json.dumps(self._content, ensure_ascii=False), encoding="utf-8")
            try:
                self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(file))
                # Before version 1.0, whether special tokens are read as text is a property, not an argument.
                self._plain: Any = None
                if hasattr(self._tokenizer, "encode_special_tokens"):
                    self._plain = tokenizers.Tokenizer.from_file(str(file))
                    self._plain.encode_special_tokens = True
            except Exception as error:  # The library raises plain exceptions.
                raise ValueError(f"the library tokenizers {tokenizers.__version__} cannot read it: {error}") from error

    def encode(self, texts: Sequence[str], *, plain: bool, add_special_tokens: bool = False) -> list[Sequence[int]]:
        """Returns the ids of texts; `plain` says whether the spelling of a special token is ordinary text."""
        if self._plain is None:
            encodings = self._tokenizer.encode_batch(
                texts, add_special_tokens=add_special_tokens, encode_special_tokens=plain
            )
            return [encoding.ids_array for encoding in encodings]
        tokenizer = self._plain if plain else self._tokenizer
        return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Returns the text of ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    @property
    def normalizer_entry(self) -> Any:
        """The entry `normalizer` of the file."""
        return self._content.get("normalizer")

    def normalize(self, text: str) -> str:
        """Returns the normalized text, or the text itself if the library's version does not show its normalizer."""
        normalizer = getattr(self._tokenizer, "normalizer", None)
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def __getstate__(self) -> dict[str, Any]:
        """Returns what to pickle: the content, from which the tokenizer is loaded again."""
        return {"_content": self._content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Loads the tokenizer again."""
        self.__dict__.update(state)
        self._load()


@dataclass(frozen=True)
class LibrarySplitter:
    """The normalizer of a tokenizer of the library, which splits texts itself."""

    library: LibraryTokenizer

    def describe_normalizer(self) -> list[Any]:
        """Returns the entry of the file."""
        return ["library", self.library.normalizer_entry]

    def normalize(self, text: str) -> str:
        """Returns the text as the library normalizes it."""
        return self.library.normalize(text)

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns the normalized texts as `large_string`; raises ValueError if a text is not UTF-8."""
        values = check_utf8(texts).to_pylist()
        return pa.array([None if text is None else self.normalize(text) for text in values], pa.large_string())

    def keep_first_characters(self, texts: pa.Array) -> Booleans:
        """Returns True for each text: where a text starts makes no difference here."""
        return np.ones(len(texts), bool)

    def split_pieces(self, pieces: pa.Array, is_first: Booleans) -> SplitBatch:
        """Raises ValueError: the library does not tell the words of a text in all its versions."""
        raise ValueError("this tokenizer runs on the library tokenizers, which does not return words")

    def split(self, text: str) -> list[str]:
        """Raises ValueError, as `split_pieces` does."""
        raise ValueError("this tokenizer runs on the library tokenizers, which does not return words")


@dataclass(frozen=True, eq=False)
class LibraryModel:
    """A tokenizer's parts; see `TokenizerModel`.

    Attributes:
        library: encodes and decodes.
        tokens: the spelling of every token, in the order of the ids; empty for an id that is not used.
        special_roles: role -> spelling, or a list of spellings for `additional`.
        added_tokens: the tokens that are found in texts by their spelling: special tokens and others.
        prefix_suffix_ids: the ids before and the ids after a text that a post-processor adds when the caller asks.
        content: the JSON content of the `tokenizer.json`.
    """

    library: LibraryTokenizer
    tokens: Sequence[bytes]
    special_roles: Mapping[str, str | list[str]]
    added_tokens: tuple[AddedToken, ...]
    prefix_suffix_ids: tuple[tuple[int, ...], tuple[int, ...]]
    content: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """`library`, whatever the family."""
        return "library"

    @property
    def pre_tokenizer(self) -> LibrarySplitter:
        """The normalizer."""
        return LibrarySplitter(self.library)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Spelling -> id of every special token."""
        return {token.content: token.id for token in self.added_tokens if token.special}


class LibraryEncoder:
    """Encodes texts with the library; its methods are those of `TextEncoder`."""

    def __init__(self, model: LibraryModel) -> None:
        """Keeps the model."""
        self._model = model

    @cached_property
    def _special(self) -> AddedTokenFinder:
        special = [token for token in self._model.added_tokens if token.special]
        return AddedTokenFinder(special, self._model.pre_tokenizer)

    def encode(self, texts: pa.Array, special: SpecialInText) -> tuple[Int32s, Int64s]:
        """Returns the ids of an array of strings, and where each text's ids start (one more number than texts).

        Raises:
            ValueError: a text is not UTF-8; or `special` is `refuse`, and a text spells a special token.
        """
        self._special.check_texts(texts, special)
        values = [text or "" for text in check_utf8(texts).to_pylist()]
        encoded = self._model.library.encode(values, plain=special != "allow")
        starts = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(ids) for ids in encoded], out=starts[1:])
        return np.concatenate([np.empty(0, np.int32), *encoded]).astype(np.int32), starts

    def encode_words(self, words: pa.Array) -> tuple[Int32s, Int64s]:
        """Raises ValueError: the library encodes texts only."""
        raise ValueError("this tokenizer runs on the library tokenizers, which encodes texts only, not words")

    def count_special(self, texts: pa.Array) -> Counter[str]:
        """Returns how often texts spell each special token."""
        return self._special.count(texts)
