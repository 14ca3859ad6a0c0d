"""Writes a tokenizer in the files of other tools; what was written is read back and compared before it is kept."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from bpe_core.encoding.model import NotExpressibleError
from bpe_core.formats import hugging_face_layout, subword_nmt, tiktoken, tokenizer_json, vocab_and_merges
from bpe_core.formats.ranks import rank_by_merges
from bpe_core.merging.alphabet import check_choice
from bpe_core.tokenizer import Tokenizer

ExportFormat = Literal["hugging-face", "vocab-and-merges", "tiktoken", "subword-nmt"]

_export_log = logging.getLogger(__name__)

_Export = tuple[dict[str, str], Callable[[], Tokenizer]]
"""File name -> text, and a function that reads the tokenizer back from these texts."""

_COMPARED_TEXTS = [
    "The quick brown fox jumps over the lazy dog, it's 2025!",
    "  two  blanks\n\n\tand\r\n line ends   ",
    "naïve café e\u0301 \u1e69 \u0323\u0307s ﬁ Ⅷ x² １２",
    "你好世界。これは日本語です。한국어 ภาษาไทย हिन्दी العربية עברית Ελληνικά Привет мир",
    "👩\u200d👩\u200d👧 👍🏽 \ufffd \x00 \u3000 \u200b",
    "def f(x):\n    return {'a': [x ** 2, -1.5e10]}  # done\n",
    "<|endoftext|> <s></s> a</w>b ab@@ ##cd Ġ Ċ",
]


def export_tokenizer(tokenizer: Tokenizer, folder: str | os.PathLike[str], format: ExportFormat) -> list[Path]:
    """Writes a tokenizer's files in another tool's format, and returns their paths.

    Before anything is written, the files' texts are read back. They must give the same tokens, and the same ids for the
    text of every token and for some texts in many scripts. Subword-nmt has no ids, so there only tokens are compared.

    A `.tiktoken` file cannot hold a Unicode normalization. If the tokenizer has one, a warning is logged that says how
    to read the file.

    Raises:
        NotExpressibleError: The format cannot hold this model, or the tokenizer that was read back is different; the
            message says how.
    """
    check_choice("format", format, ExportFormat)
    contents, read_back = _EXPORTS[format](tokenizer)
    if tokenizer.has_merges:
        _refuse_difference(tokenizer, read_back(), has_ids=format != "subword-nmt")
    unicode = tokenizer.pre_tokenizer.unicode if format == "tiktoken" else "none"
    if unicode != "none":
        _export_log.warning(
            "a .tiktoken file cannot say that this tokenizer normalizes text to %s. Read the file with that setting "
            "(--unicode %s, shards.unicode, or Tokenizer.from_tiktoken(..., unicode=%r)); other tools must normalize "
            "text themselves, or their ids differ",
            unicode,
            unicode,
            unicode,
        )
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in contents.items():
        temporary = target / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8", newline="\n")
        paths.append(temporary.replace(target / name))
    return paths


def _export_hugging_face(tokenizer: Tokenizer) -> _Export:
    if tokenizer.has_merges:
        tokenizer = Tokenizer(rank_by_merges(tokenizer.model))
        hugging_face_layout.to_hugging_face(tokenizer.model)  # Raises if `files` would use our own layout.
    files = tokenizer.files()
    if json.loads(files[tokenizer_json.TOKENIZER_FILE])["version"] != hugging_face_layout.HUGGING_FACE_VERSION:
        raise NotExpressibleError(f"the library has no layout for this tokenizer of kind {tokenizer.kind}")
    return files, lambda: Tokenizer.from_json(
        files[tokenizer_json.TOKENIZER_FILE], files[tokenizer_json.SPECIAL_TOKENS_FILE]
    )


def _export_vocab_and_merges(tokenizer: Tokenizer) -> _Export:
    vocab, merges = vocab_and_merges.write_vocab_and_merges(tokenizer.model)
    special: Any = {"additional": list(tokenizer.special_tokens)} if tokenizer.special_tokens else None
    files = {"vocab.json": vocab, "merges.txt": merges}
    return files, lambda: Tokenizer.from_vocab_and_merges(vocab, merges, special_tokens=special)


def _export_tiktoken(tokenizer: Tokenizer) -> _Export:
    text = tiktoken.write_tiktoken(tokenizer.model)
    pre_tokenizer = tokenizer.pre_tokenizer

    def read_back() -> Tokenizer:
        return Tokenizer(
            tiktoken.read_tiktoken(text, pre_tokenizer.pattern, tokenizer.special_tokens, pre_tokenizer.unicode)
        )

    return {"tokenizer.tiktoken": text}, read_back


def _export_subword_nmt(tokenizer: Tokenizer) -> _Export:
    codes = subword_nmt.write_subword_nmt(tokenizer.model)
    return {"codes.txt": codes}, lambda: Tokenizer.from_subword_nmt(codes, special_tokens={"unk": "<unk>"})


_EXPORTS: dict[str, Callable[[Tokenizer], _Export]] = {
    "hugging-face": _export_hugging_face,
    "vocab-and-merges": _export_vocab_and_merges,
    "tiktoken": _export_tiktoken,
    "subword-nmt": _export_subword_nmt,
}


def _refuse_difference(tokenizer: Tokenizer, read: Tokenizer, has_ids: bool) -> None:
    """Raises NotExpressibleError if the tokenizer that was read back is not the one that was written."""
    added = {token.id for token in tokenizer.added_tokens}
    tokens = [token for id_, token in enumerate(tokenizer.token_bytes()) if id_ not in added]
    if has_ids and tokenizer.token_bytes() != read.token_bytes():
        ids = zip(tokenizer.token_bytes(), read.token_bytes(), strict=False)
        first = next((id_ for id_, (ours, theirs) in enumerate(ids) if ours != theirs), read.vocab_size)
        raise NotExpressibleError(f"read back from the file, the id {first} has another token than in this tokenizer")
    spelled = [tokenizer.alphabet.spell(token) for token in tokens]
    token_texts = [t.decode(errors="replace") if isinstance(t, bytes) else t.removesuffix("</w>") for t in spelled]
    texts = [*_COMPARED_TEXTS, *token_texts]
    if has_ids:
        array = pa.array(texts, pa.large_string())
        pairs = zip(tokenizer.encode_batch(array).to_pylist(), read.encode_batch(array).to_pylist(), strict=True)
    else:
        # A character that occurs in no merge is unknown to the codes, and their tool shows it without the marker.
        splits = ([[s.removesuffix("</w>") for s in t.tokenize(text)] for text in texts] for t in (tokenizer, read))
        pairs = zip(*splits, strict=True)
    for text, (ours, theirs) in zip(texts, pairs, strict=True):
        if ours != theirs:
            raise NotExpressibleError(
                f"read back from the file, the tokenizer gives {theirs[:20]} for {text[:60]!r}, not {ours[:20]}"
            )
