"""`tekken.json`, Mistral's files since 2024: ranks and pattern in one JSON object.

The first ids belong to special tokens; the token of rank r has the id r plus their number. A file may list more tokens
than its vocabulary has. mistral-common never reads special tokens from texts: what a text spells is ordinary text, as
with `special="plain"` here.
"""

import base64
import binascii
import json
from dataclasses import replace
from typing import Any

from bpe_core.encoding.model import Model
from bpe_core.formats.shared_entries import get_entry
from bpe_core.formats.tiktoken import make_ranked_model

# Files of versions up to v7 do not list their special tokens, which are always these (mistral-common, `SpecialTokens`).
_EARLY_SPECIAL_TOKENS = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()
_EARLY_VERSIONS = ("v1", "v2", "v3", "v7")
_ROLES = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}


def read_tekken(text: str) -> Model:
    """Returns the model in the text of a `tekken.json`.

    Raises:
        KeyError, AttributeError, TypeError, ValueError: an entry is missing or damaged.
    """
    content = json.loads(text)
    config = get_entry(content, "config")
    size, num_special = config["default_vocab_size"], config["default_num_special_tokens"]
    special = _read_special_tokens(content, config, num_special)
    ranks: dict[bytes, int] = {}
    for entry in get_entry(content, "vocab"):
        if entry["rank"] < size - num_special:
            ranks[_read_token(entry)] = entry["rank"] + num_special
    if sorted(ranks.values()) != list(range(num_special, size)):
        raise ValueError(
            f"vocab has {len(ranks)} different tokens of a rank below {size - num_special}; config wants one of each"
        )
    model = make_ranked_model(ranks, config["pattern"], special)
    return replace(model, special_roles={role: token for role, token in _ROLES.items() if token in special})


def _read_special_tokens(content: dict[str, Any], config: dict[str, Any], num_special: int) -> dict[str, int]:
    """Returns spelling -> id of all special tokens; those that the file does not list are called `<SPECIAL_20>`."""
    listed = content.get("special_tokens")
    if listed is None:
        if config.get("version") not in _EARLY_VERSIONS:
            raise ValueError(f"the file is of version {config.get('version')!r} and lacks its special_tokens")
        special = {token: id_ for id_, token in enumerate(_EARLY_SPECIAL_TOKENS)}
    else:
        special = {entry["token_str"]: entry["rank"] for entry in listed}
    ids = set(special.values())
    special |= {f"<SPECIAL_{id_}>": id_ for id_ in range(num_special) if id_ not in ids}
    if sorted(special.values()) != list(range(num_special)):
        raise ValueError(f"special_tokens do not have the ids 0 to {num_special - 1}, each once")
    return special


def _read_token(entry: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(entry["token_bytes"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the token of rank {entry['rank']} is {entry['token_bytes']!r}, not base64") from error
