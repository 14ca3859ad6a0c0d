"""The entry `normalizer` of `tokenizer.json`, for tokenizers whose normalizer is made of steps."""

import base64
import json
from typing import Any

from bpe_core.merging.alphabet import BYTE_TO_CHARACTER
from bpe_core.pretokenize.character_map import BertNormalizer, CleanForNmt, StripAccents
from bpe_core.pretokenize.charsmap import ReplaceByCharsmap
from bpe_core.pretokenize.normalizer_steps import (
    LowerCase,
    NormalizerStep,
    NormalizerSteps,
    Prepend,
    ReplacePattern,
    ReplaceText,
    SpellBytes,
    Strip,
    UnicodeForm,
)


def read_normalizer_steps(normalizer: Any) -> NormalizerSteps:
    """Returns the normalizer that an entry asks for.

    Raises:
        ValueError: The entry asks for a normalizer that is not supported; the message names it.

    >>> read_normalizer_steps({"type": "Prepend", "prepend": "▁"}).normalize("a")
    '▁a'
    """
    return NormalizerSteps(tuple(_list_steps(normalizer)))


def _list_steps(entry: Any) -> list[NormalizerStep]:
    match entry:
        case None:
            return []
        case {"type": "Sequence", "normalizers": list(entries)}:
            return [step for one in entries for step in _list_steps(one)]
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            return [UnicodeForm(form)]
        case {"type": "Lowercase"}:
            return [LowerCase()]
        case {"type": "Prepend", "prepend": str(content)}:
            return [Prepend(content)]
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)} if old:
            return [ReplaceText(old, new)]
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(new)}:
            return [ReplacePattern(pattern, new)]
        case {"type": "Strip", "strip_left": bool(left), "strip_right": bool(right)}:
            return [Strip(left, right)]
        case {"type": "StripAccents"}:
            return [StripAccents()]
        case {"type": "Nmt"}:
            return [CleanForNmt()]
        case {"type": "BertNormalizer", "clean_text": bool(clean), "handle_chinese_chars": bool(chinese), **others}:
            match others:
                case {"strip_accents": bool() | None as strips, "lowercase": bool(lowercase)}:
                    return [BertNormalizer(clean, chinese, lowercase if strips is None else strips, lowercase)]
        case {"type": "Precompiled", "precompiled_charsmap": str(charsmap)}:
            return [ReplaceByCharsmap(base64.b64decode(charsmap))]
        case {"type": "ByteLevel"}:
            return [SpellBytes("".join(BYTE_TO_CHARACTER[byte] for byte in range(256)))]
    raise ValueError(f"normalizer {json.dumps(entry)[:200]} is not supported")
