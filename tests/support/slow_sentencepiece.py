"""Slow, obvious twins of the compiled code for SentencePiece's byte-pair encoding."""

from collections.abc import Mapping, Sequence
from typing import Any


def encode_slowly(text: str, model: Mapping[str, Any]) -> list[int]:
    """Returns the ids of a text that is one word, by the entry `model` of a `tokenizer.json`."""
    vocab: Mapping[str, int] = model["vocab"]
    if model.get("ignore_merges") and text in vocab:
        return [vocab[text]]
    return merge_slowly(_list_symbols(text, model), vocab, model["merges"])


def _list_symbols(text: str, model: Mapping[str, Any]) -> list[int]:
    vocab = model["vocab"]
    unknown = vocab.get(model["unk_token"])
    symbols: list[int] = []
    is_waiting = False  # Whether an `unk` waits for the next known character.
    for character in text:
        byte_tokens = [f"<0x{byte:02X}>" for byte in character.encode()]
        if character in vocab:
            symbols += [unknown] * is_waiting + [vocab[character]]
            is_waiting = False
        elif model.get("byte_fallback") and all(token in vocab for token in byte_tokens):
            symbols += [vocab[token] for token in byte_tokens]
        else:
            symbols += [unknown] * (is_waiting and not model.get("fuse_unk"))
            is_waiting = True
    return symbols + [unknown] * is_waiting


def merge_slowly(ids: list[int], vocab: Mapping[str, int], merges: Sequence[Sequence[str]]) -> list[int]:
    """Returns the ids after all merges: the pair of the lowest rank first, of equal pairs the leftmost."""
    ranks = {(vocab[left], vocab[right]): (rank, vocab[left + right]) for rank, (left, right) in enumerate(merges)}
    while True:
        found = [(*ranks[pair], at) for at in range(len(ids) - 1) if (pair := (ids[at], ids[at + 1])) in ranks]
        if not found:
            return ids
        _, made, at = min(found, key=lambda one: (one[0], one[2]))
        ids = [*ids[:at], made, *ids[at + 2 :]]
