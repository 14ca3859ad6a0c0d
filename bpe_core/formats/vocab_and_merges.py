"""`vocab.json` and `merges.txt`, the two files of GPT-2."""

import json
from dataclasses import replace

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, SpecialTokens, list_special_tokens, make_pre_tokenizer
from bpe_core.formats.ranks import find_first_unreachable, rank_by_merges
from bpe_core.formats.tokenizer_json import read_tokenizer_json
from bpe_core.merging.alphabet import BYTE_TO_CHARACTER


def read_vocab_and_merges(
    vocab: str, merges: str, pattern: str = "gpt2", special_tokens: SpecialTokens | None = None
) -> Model:
    """Returns the model of a `vocab.json` and a `merges.txt` of kind `byte`, as GPT-2's.

    Args:
        special_tokens: role -> spelling, of entries of `vocab.json`.

    Raises:
        ValueError: see `formats.read_tokenizer_json`; a line of `merges.txt` that is not two tokens.
    """
    ids = json.loads(vocab)
    if not isinstance(ids, dict) or not all(isinstance(id_, int) for id_ in ids.values()):
        raise ValueError("vocab.json is not an object of tokens and their ids")
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    special = list_special_tokens(special_tokens or {})
    absent = [spelling for spelling in special if spelling not in ids]
    if absent:
        raise ValueError(f"the special token {absent[0]!r} is not in vocab.json")
    content = {
        "version": "1.0",
        "added_tokens": [{"id": ids[spelling], "content": spelling, "special": True} for spelling in special],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": ids, "merges": lines},
    }
    model = read_tokenizer_json(content)
    roles = {role: given if isinstance(given, str) else list(given) for role, given in (special_tokens or {}).items()}
    return replace(model, pre_tokenizer=make_pre_tokenizer("byte", pattern), special_roles=roles)


def write_vocab_and_merges(model: Model) -> tuple[str, str]:
    """Returns the texts of `vocab.json` and `merges.txt`, for GPT-2's pattern.

    Raises:
        NotExpressibleError: kind `char`, another pattern, a normalisation, whole words before merges, or flags of
            tokens.
    """
    model = rank_by_merges(model)
    if model.alphabet.kind != "byte":
        raise NotExpressibleError("vocab.json and merges.txt are written for kind byte only")
    if model.pre_tokenizer != make_pre_tokenizer("byte"):
        raise NotExpressibleError(
            "vocab.json and merges.txt say nothing of patterns and normalisation; their tools use gpt2's"
        )
    if model.ignore_merges and find_first_unreachable(model) is not None:
        raise NotExpressibleError(
            "merges.txt cannot say that words which are tokens come before the merges (ignore_merges)"
        )
    if any(token != AddedToken(token.content, token.id) for token in model.added_tokens):
        raise NotExpressibleError("vocab.json has no place for the flags of added tokens")
    added = {token.id: token.content for token in model.added_tokens}
    spelled = [
        added.get(id_, "".join(BYTE_TO_CHARACTER[byte] for byte in token)) for id_, token in enumerate(model.tokens)
    ]
    vocab = {spelling: id_ for id_, spelling in enumerate(spelled) if spelling}
    if len(vocab) != sum(map(bool, spelled)):
        raise NotExpressibleError("two tokens are written alike in vocab.json")
    lines = [f"{spelled[left]} {spelled[right]}\n" for left, right, _ in model.merges.tolist()]
    return json.dumps(vocab, ensure_ascii=False) + "\n", "#version: 0.2\n" + "".join(lines)
