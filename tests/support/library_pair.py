"""Compares our tokenizer of a `tokenizer.json` with Hugging Face's library."""

import json
from typing import Any

import pyarrow as pa
import pytest

from bpe_core import Tokenizer
from bpe_core.encoding.added_tokens import SpecialInText

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")


class LibraryPair:
    """Our tokenizer of a file, and the library's, as it is and with special tokens read as text."""

    def __init__(self, content: dict[str, Any]) -> None:
        text = json.dumps(content)
        self.ours = Tokenizer.from_json(text, engine="native")
        self.theirs = tokenizers.Tokenizer.from_str(text)
        self.plain = tokenizers.Tokenizer.from_str(text)
        self.plain.encode_special_tokens = True

    def check(self, batch: list[str]) -> None:
        """Asserts that ids and decoded texts are the library's."""
        array = pa.array(batch, pa.large_string())
        specials: list[tuple[SpecialInText, Any]] = [("plain", self.plain), ("allow", self.theirs)]
        for special, library in specials:
            expected = [one.ids for one in library.encode_batch_fast(batch, add_special_tokens=False)]
            assert self.ours.encode_batch(array, special=special).to_pylist() == expected
        for ids in expected:
            for skip in (True, False):
                decoded = self.theirs.decode(ids, skip_special_tokens=skip)
                assert self.ours.decode(ids, skip_special_tokens=skip) == decoded

    def check_ids(self, batch: list[str]) -> None:
        """Asserts that ids are the library's, with special tokens read as text."""
        expected = [one.ids for one in self.plain.encode_batch_fast(batch, add_special_tokens=False)]
        assert self.ours.encode_batch(pa.array(batch, pa.large_string())).to_pylist() == expected
