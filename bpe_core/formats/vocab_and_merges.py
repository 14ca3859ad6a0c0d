r"""`vocab.json` and `merges.txt`, the two files in which GPT-2 and RoBERTa keep their tokenizer.

They do not say how text is split into words: their tools use GPT-2's pattern. Only `\n` or `\r\n` ends a line of
`merges.txt`.
"""

import json
from dataclasses import replace

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, SpecialTokens, list_special_tokens, make_pre_tokenizer
from bpe_core.formats.hugging_face_layout import read_hugging_face
from bpe_core.formats.lines import split_lines
from bpe_core.formats.ranks import find_first_unreachable, rank_by_merges
from bpe_core.formats.shared_entries import spell_tokens
from bpe_core.pretokenize.normalizer import Normalization


def read_vocab_and_merges(
    vocab: str,
    merges: str,
    pattern: str = "gpt2",
    special_tokens: SpecialTokens | None = None,
    unicode: Normalization = "none",
) -> Model:
    """Returns the model in a `vocab.json` and a `merges.txt`, which is of kind `byte`.

    Args:
        vocab: The text of `vocab.json`.
        merges: The text of `merges.txt`.
        pattern: How text is split into words: a key of `PATTERNS` or a regular expression.
        special_tokens: Role -> spelling; each must be an entry of `vocab.json`.
        unicode: The Unicode normalization applied before splitting.

    Raises:
        ValueError: A special token is not in `vocab.json`, a line of `merges.txt` is not two tokens, or as in
            `read_hugging_face`.
    """
    ids = json.loads(vocab)
    if not isinstance(ids, dict) or not all(isinstance(id_, int) for id_ in ids.values()):
        raise ValueError("vocab.json is not a JSON object that maps tokens to ids")
    lines = [line for line in split_lines(merges) if line and not line.startswith("#version")]
    special = list_special_tokens(special_tokens or {})
    absent = [spelling for spelling in special if spelling not in ids]
    if absent:
        raise ValueError(f"the special token {absent[0]!r} is not in vocab.json")
    content = {
        "added_tokens": [{"id": ids[spelling], "content": spelling, "special": True} for spelling in special],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": ids, "merges": lines},
    }
    model = read_hugging_face(content)
    roles = {role: given if isinstance(given, str) else list(given) for role, given in (special_tokens or {}).items()}
    return replace(model, pre_tokenizer=make_pre_tokenizer("byte", pattern, unicode), special_roles=roles)


def write_vocab_and_merges(model: Model) -> tuple[str, str]:
    """Returns the texts of `vocab.json` and `merges.txt`.

    Raises:
        NotExpressibleError: The model is of kind `char`, has another pattern than GPT-2's or a normalizer, needs
            `ignore_merges`, or has added tokens with flags; the files cannot say any of these.
    """
    model = rank_by_merges(model)
    if model.alphabet.kind != "byte":
        raise NotExpressibleError(
            "vocab.json and merges.txt are written for kind byte only, but this tokenizer is of kind char"
        )
    if model.pre_tokenizer != make_pre_tokenizer("byte"):
        raise NotExpressibleError(
            "vocab.json and merges.txt hold neither a pattern nor a normalizer, and their tools split text by the "
            "pattern gpt2 without normalizing it; this tokenizer differs"
        )
    if model.ignore_merges and find_first_unreachable(model) is not None:
        raise NotExpressibleError(
            "this tokenizer looks up whole words before it merges (ignore_merges), which changes ids here and which "
            "merges.txt cannot say"
        )
    if any(token != AddedToken(token.content, token.id) for token in model.added_tokens):
        raise NotExpressibleError("vocab.json cannot hold the flags of added tokens, such as lstrip or single_word")
    spellings = spell_tokens(model)
    vocab = {spelling: id_ for id_, spelling in enumerate(spellings) if spelling}
    if len(vocab) != sum(map(bool, spellings)):
        raise NotExpressibleError("two tokens would have the same spelling in vocab.json")
    lines = [f"{spellings[left]} {spellings[right]}\n" for left, right, _ in model.merges.tolist()]
    return json.dumps(vocab, ensure_ascii=False) + "\n", "#version: 0.2\n" + "".join(lines)
