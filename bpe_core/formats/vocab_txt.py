"""BERT's original files: `vocab.txt`, and `tokenizer_config.json`, which says how texts are normalized."""

import json
from typing import Any

_DEFAULT_ROLES = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_NO_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def convert_vocab_txt(vocab: str, config: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the content of the `tokenizer.json` and of the `special_tokens_map.json` that say the same.

    Args:
        vocab: the text of `vocab.txt`: one token on each line, in the order of the ids.
        config: the text of `tokenizer_config.json`.

    Raises:
        ValueError: `config` is missing or does not say whether texts are put in lower case; a token is listed twice; or
            there is no unknown token.
    """
    settings = json.loads(config) if config else {}
    if not isinstance(settings.get("do_lower_case"), bool):
        raise ValueError(
            "vocab.txt does not say whether texts are put in lower case; put a tokenizer_config.json with the entry "
            '"do_lower_case" beside it: true for BERT\'s uncased models, false for its cased ones'
        )
    ids = _number_lines(vocab)
    roles = {role: _spell(settings.get(f"{role}_token") or spelling) for role, spelling in _DEFAULT_ROLES.items()}
    if roles["unk"] not in ids:
        raise ValueError(f"vocab.txt lacks the unknown token {roles['unk']!r}")
    roles = {role: spelling for role, spelling in roles.items() if spelling in ids}
    added: list[dict[str, Any]] = [
        {"id": ids[spelling], "content": spelling, "special": True, **_NO_FLAGS}
        for spelling in dict.fromkeys(roles.values())
    ]
    around: dict[str, Any] = {role: [roles[role], ids[roles[role]]] for role in ("sep", "cls") if role in roles}
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": bool(settings.get("tokenize_chinese_chars", True)),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": settings["do_lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **around} if len(around) == 2 else None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": roles["unk"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    return content, {f"{role}_token": spelling for role, spelling in roles.items()}


def _number_lines(vocab: str) -> dict[str, int]:
    """Returns the id of each token; the number of its line, from 0."""
    ids: dict[str, int] = {}
    for id_, line in enumerate(vocab.removesuffix("\n").split("\n")):
        token = line.removesuffix("\r")
        if token and ids.setdefault(token, id_) != id_:
            raise ValueError(f"vocab.txt has the token {token!r} on the lines {ids[token] + 1} and {id_ + 1}")
    return ids


def _spell(token: str | dict[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
