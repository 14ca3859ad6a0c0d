"""A tokenizer written in the files of other tools, each checked by reading it again."""

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

_SAMPLE = [
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

    The files are read again before they get their names, and must give the same tokens and, on every token's own text
    and a sample of texts, the same ids (for subword-nmt, which has no ids, the same tokens).

    Raises:
        NotExpressibleError: the format cannot hold this model, or what was read is another; the message says why.
    """
    check_choice("format", format, ExportFormat)
    contents, read = _WRITERS[format](tokenizer)
    _compare(tokenizer, read(), has_ids=format != "subword-nmt")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in contents.items():
        temporary = target / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8", newline="\n")
        paths.append(temporary.replace(target / name))
    return paths


def _hugging_face(tokenizer: Tokenizer) -> tuple[dict[str, str], Callable[[], Tokenizer]]:
    merged = Tokenizer(rank_by_merges(tokenizer.model))
    hugging_face_layout.to_hugging_face(merged.model)  # Else `files` would be in our own layout.
    files = merged.files()
    return files, lambda: Tokenizer.from_json(
        files[tokenizer_json.TOKENIZER_FILE], files[tokenizer_json.SPECIAL_TOKENS_FILE]
    )


def _vocab_and_merges(tokenizer: Tokenizer) -> tuple[dict[str, str], Callable[[], Tokenizer]]:
    vocab, merges = vocab_and_merges.write_vocab_and_merges(tokenizer.model)
    special: Any = {"additional": list(tokenizer.special_tokens)} if tokenizer.special_tokens else None
    files = {"vocab.json": vocab, "merges.txt": merges}
    return files, lambda: Tokenizer.from_vocab_and_merges(vocab, merges, special_tokens=special)


def _tiktoken(tokenizer: Tokenizer) -> tuple[dict[str, str], Callable[[], Tokenizer]]:
    text = tiktoken.write_tiktoken(tokenizer.model)
    pre_tokenizer = tokenizer.pre_tokenizer

    def read() -> Tokenizer:
        return Tokenizer(
            tiktoken.read_tiktoken(text, pre_tokenizer.pattern, tokenizer.special_tokens, pre_tokenizer.unicode)
        )

    return {"tokenizer.tiktoken": text}, read


def _subword_nmt(tokenizer: Tokenizer) -> tuple[dict[str, str], Callable[[], Tokenizer]]:
    codes = subword_nmt.write_subword_nmt(tokenizer.model)
    return {"codes.txt": codes}, lambda: Tokenizer.from_codes(codes, special_tokens={"unk": "<unk>"})


_WRITERS: dict[str, Callable[[Tokenizer], tuple[dict[str, str], Callable[[], Tokenizer]]]] = {
    "hugging-face": _hugging_face,
    "vocab-and-merges": _vocab_and_merges,
    "tiktoken": _tiktoken,
    "subword-nmt": _subword_nmt,
}


def _compare(tokenizer: Tokenizer, read: Tokenizer, has_ids: bool) -> None:
    """Raises NotExpressibleError where what was read is not what was written."""
    added = {token.id for token in tokenizer.added_tokens}
    tokens = [token for id_, token in enumerate(tokenizer.token_bytes()) if id_ not in added]
    if has_ids and tokenizer.token_bytes() != read.token_bytes():
        ids = zip(tokenizer.token_bytes(), read.token_bytes(), strict=False)
        first = next((id_ for id_, (ours, theirs) in enumerate(ids) if ours != theirs), read.vocab_size)
        raise NotExpressibleError(f"the file that was written is read with another token for the id {first}")
    spelled = [tokenizer.alphabet.spell(token) for token in tokens]
    texts = [t.decode(errors="replace") if isinstance(t, bytes) else t.removesuffix("</w>") for t in spelled]
    sample = [*_SAMPLE, *texts]
    if has_ids:
        array = pa.array(sample, pa.large_string())
        pairs = zip(tokenizer.encode_batch(array).to_pylist(), read.encode_batch(array).to_pylist(), strict=True)
    else:
        # A character that stands in no merge is unknown to the codes, and then shown without the marker.
        cuts = ([[s.removesuffix("</w>") for s in t.tokenize(text)] for text in sample] for t in (tokenizer, read))
        pairs = zip(*cuts, strict=True)
    for text, (ours, theirs) in zip(sample, pairs, strict=True):
        if ours != theirs:
            raise NotExpressibleError(
                f"the file that was written gives {theirs[:20]} for {text[:60]!r}, not {ours[:20]}"
            )
