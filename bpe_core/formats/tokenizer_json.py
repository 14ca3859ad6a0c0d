"""The files of a saved tokenizer: `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from bpe_core.encoding.library_model import LibraryModel
from bpe_core.encoding.model import ROLES, Model, NotExpressibleError, check_roles
from bpe_core.encoding.piece_model import PieceModel
from bpe_core.formats.given_special_tokens import GivenSpecialTokens, declare_special_tokens, list_given_roles
from bpe_core.formats.hugging_face_layout import HUGGING_FACE_VERSION, read_hugging_face, to_hugging_face
from bpe_core.formats.library_json import read_for_library
from bpe_core.formats.own_layout import OWN_VERSION, read_own_layout, to_own_layout
from bpe_core.formats.sentencepiece_bpe_json import read_sentencepiece_bpe
from bpe_core.formats.sentencepiece_model import SENTENCEPIECE_VERSION, read_saved_sentencepiece
from bpe_core.formats.shared_entries import get_entry
from bpe_core.formats.unigram_json import read_unigram
from bpe_core.formats.wordpiece_json import read_wordpiece
from bpe_core.pretokenize.unicode_categories import UNICODE_VERSION

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

Engine = Literal["native", "hf", "auto"]
"""What encodes: our compiled code, Hugging Face's library, or the library only for what our code does not support."""

AnyModel = Model | PieceModel | LibraryModel
"""The model of a tokenizer of any family."""

_log = logging.getLogger(__name__)

_KEY_OF_ROLE = {role: "additional_special_tokens" if role == "additional" else f"{role}_token" for role in ROLES}


def make_files(model: AnyModel) -> dict[str, dict[str, Any]]:
    """Returns the JSON content of each file of a tokenizer, by file name.

    `tokenizer.json` is in Hugging Face's layout if that can hold the model exactly, else in our own.
    `tokenizer_config.json` is for `transformers.AutoTokenizer`. `special_tokens_map.json` maps roles to spellings.
    """
    if not isinstance(model, Model):
        content = dict(model.content)
    else:
        try:
            content = to_hugging_face(model)
        except NotExpressibleError as error:
            content = to_own_layout(model, str(error))
    roles = {_KEY_OF_ROLE[role]: spelling for role, spelling in model.special_roles.items()}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "unicode_version": UNICODE_VERSION,
        **roles,
    }
    return {TOKENIZER_FILE: content, CONFIG_FILE: config, SPECIAL_TOKENS_FILE: roles}


def format_json(content: Mapping[str, Any]) -> str:
    """Returns JSON content as the text of a file, indented and with a line feed at its end."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def read_tokenizer_json(content: Any, engine: Engine = "native") -> AnyModel:
    """Returns the model in a `tokenizer.json` of either layout.

    Args:
        content: the JSON content.
        engine: see `Engine`. With `auto`, a warning is logged if the library is used.

    Raises:
        ValueError: An entry is missing, contradicts another, or is not supported; the message names it.
        ModuleNotFoundError: with engine `hf`, the library is not installed.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine is {engine!r}; it is one of {', '.join(get_args(Engine))}")
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError("this is not a tokenizer file: it has no version")
    if content["version"] == OWN_VERSION:
        return read_own_layout(content)
    if content["version"] == SENTENCEPIECE_VERSION:
        return read_saved_sentencepiece(content)
    if content["version"] != HUGGING_FACE_VERSION:
        raise ValueError(
            f"version {content['version']!r} is unknown; this build reads {HUGGING_FACE_VERSION}, {OWN_VERSION!r} and "
            f"{SENTENCEPIECE_VERSION!r}"
        )
    content = _leave_out_row_settings(content)
    if engine == "hf":
        return read_for_library(content)
    try:
        return _read_native(content)
    except ValueError as error:
        if engine == "native":
            raise
        return _read_unsupported(content, error)


def read_json_and_roles(
    text: str,
    special_tokens_map: str | None,
    tokenizer_config: str | None,
    engine: Engine,
    special_tokens: GivenSpecialTokens | None = None,
) -> AnyModel:
    """Returns the model in the texts of a `tokenizer.json` and of the files beside it, as far as they exist.

    Args:
        text: the text of the `tokenizer.json`.
        special_tokens_map: the text of a `special_tokens_map.json`.
        tokenizer_config: the text of a `tokenizer_config.json`.
        engine: see `Engine`.
        special_tokens: tokens that become special tokens, with roles that replace those of the files.

    Raises:
        KeyError, AttributeError, TypeError, ValueError: a file is damaged, contradicts another, asks for something that
            is not supported, or was saved with another version of Unicode.
    """
    content = json.loads(text)
    if special_tokens and isinstance(content, dict) and content.get("version") == HUGGING_FACE_VERSION:
        content = declare_special_tokens(content, special_tokens)
    model = read_tokenizer_json(content, engine)
    if tokenizer_config:
        check_unicode_version(json.loads(tokenizer_config))
    given = special_tokens_map or tokenizer_config
    roles = (read_special_tokens_map(json.loads(given)) if given else {}) | list_given_roles(special_tokens or {})
    return replace(model, special_roles=check_roles(roles, model.special_tokens) or model.special_roles)


def _read_native(content: dict[str, Any]) -> Model | PieceModel:
    """Returns the model in a `tokenizer.json` of Hugging Face's layout, by the family that `model.type` names."""
    kind = get_entry(content, "model").get("type", "BPE")
    reader = _READER_OF_TYPE.get(kind)
    if reader is None:
        raise ValueError(f"model.type is {kind!r}; supported are {', '.join(_READER_OF_TYPE)}")
    return reader(content)


def _read_bpe(content: dict[str, Any]) -> Model | PieceModel:
    """Returns the model of a byte-pair encoding, which merges bytes, or characters with a marker at the word's end."""
    has_bytes = any(_has_step(content.get(entry), "ByteLevel") for entry in ("normalizer", "pre_tokenizer"))
    if has_bytes or content["model"].get("end_of_word_suffix"):
        return read_hugging_face(content)
    return read_sentencepiece_bpe(content)


def _has_step(entry: Any, kind: str) -> bool:
    """Returns whether an entry, or a step in a list of its steps, is of a type."""
    if isinstance(entry, list):
        return any(_has_step(one, kind) for one in entry)
    return isinstance(entry, dict) and (
        entry.get("type") == kind or any(_has_step(value, kind) for value in entry.values())
    )


_READER_OF_TYPE: dict[str, Callable[[dict[str, Any]], Model | PieceModel]] = {
    "BPE": _read_bpe,
    "Unigram": read_unigram,
    "WordPiece": read_wordpiece,
}
"""What reads a `tokenizer.json` of Hugging Face's layout, by its `model.type`."""


def _leave_out_row_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Returns the content without truncation and padding; logs a warning for each that it has."""
    ignored = [key for key in ("truncation", "padding") if content.get(key) is not None]
    for key in ignored:
        _log.warning("the entry %s of tokenizer.json is ignored: job 2 splits and pads rows by its own settings", key)
    return {**content, **dict.fromkeys(ignored)}


def _read_unsupported(content: dict[str, Any], reason: ValueError) -> LibraryModel:
    """Returns the model of a file that our code cannot read for a reason, if the library can; logs a warning."""
    try:
        model = read_for_library(content)
    except ModuleNotFoundError:
        raise ValueError(
            f"{reason}. The library tokenizers may support it: install it (pip install tokenmill[hf])"
        ) from reason
    except ValueError:
        raise reason from None
    _log.warning(
        "Hugging Face's library encodes texts, several times slower than compiled code would, because %s", reason
    )
    return model


def check_unicode_version(tokenizer_config: Any) -> None:
    """Checks that a `tokenizer_config.json` names no other version of the pinned Unicode tables than this build has.

    Files of other programs name none, and are accepted.

    Raises:
        ValueError: it names another version, so that the tokenizer could give other ids than where it was saved.
    """
    version = tokenizer_config.get("unicode_version", UNICODE_VERSION)
    if version != UNICODE_VERSION:
        raise ValueError(
            f"{CONFIG_FILE} says that the tokenizer was saved with the tables of Unicode {version}, but this build has "
            f"those of {UNICODE_VERSION}, and would give other ids for some texts. Install a release with the tables "
            f"of Unicode {version}. To accept the difference, delete unicode_version from {CONFIG_FILE}"
        )


def read_special_tokens_map(content: Any) -> dict[str, str | list[str]]:
    """Returns role -> spelling, in the order given, from `special_tokens_map.json` or `tokenizer_config.json`."""
    role_of_key = {key: role for role, key in _KEY_OF_ROLE.items()}
    roles: dict[str, str | list[str]] = {}
    for key, given in content.items():
        role = role_of_key.get(key)
        if role is None:
            continue
        if isinstance(given, list):
            roles[role] = [one["content"] if isinstance(one, dict) else one for one in given]
        elif given is not None:
            roles[role] = given["content"] if isinstance(given, dict) else given
    return roles
