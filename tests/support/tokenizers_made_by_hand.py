"""Makes tokenizers that training would not give."""

import json
from typing import Any

from bpe_core import Tokenizer


def make_tokenizer_with_merges(
    pairs: list[list[str]], *, ignore_merges: bool = False, more: tuple[str, ...] = ()
) -> Tokenizer:
    """Returns a tokenizer of kind `byte` with these merges, and with `more` tokens that no merge makes."""
    content = json.loads(Tokenizer.train(["x"], num_merges=0).files()["tokenizer.json"])
    vocab = content["model"]["vocab"]
    for token in [*("".join(pair) for pair in pairs), *more]:
        vocab.setdefault(token, len(vocab))
    content["model"] |= {"merges": pairs, "ignore_merges": ignore_merges}
    return Tokenizer.from_json(json.dumps(content))


def make_word_level_content(**entries: Any) -> dict[str, Any]:
    """Returns a WordLevel tokenizer, a family that is not compiled here, with some entries replaced."""
    vocab = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "hug": 3, "pug": 4, "s": 5, "!": 6}
    special = [{"id": id_, "content": token, "special": True} for token, id_ in list(vocab.items())[:3]]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": None,
        "added_tokens": [{**one, **flags} for one in special],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        **entries,
    }
