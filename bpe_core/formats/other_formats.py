"""The other files that BPE tokenizers are kept in: `.tiktoken`, `vocab.json` with `merges.txt`, subword-nmt codes.

None of them says how text is cut into words, so a reader is told, and a writer refuses what its format's own tool would
cut in another way.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, SpecialTokens, list_special_tokens, make_pre_tokenizer
from bpe_core.formats.ranks import check_ranks_equal_merges, find_first_unreachable, rank_by_merges
from bpe_core.formats.tokenizer_json import read_tokenizer_json
from bpe_core.merging.alphabet import BYTE_ALPHABET, BYTE_TO_CHARACTER, MARKER, Alphabet, Placement
from bpe_core.pretokenize.pre_tokenizer import Normalization

_END_OF_WORD = "</w>"
_CODES_VERSIONS: dict[str, Placement] = {"0.1": "apart", "0.2": "glued"}


def read_tiktoken(
    text: str,
    pattern: str | tuple[str, ...],
    special_tokens: Mapping[str, int] | None = None,
    unicode: Normalization = "none",
) -> Model:
    """Returns the model of a `.tiktoken` file: lines of a token in base64, a blank, and its rank, which is its id.

    Args:
        pattern: how text is cut; the file does not say. A key of `PATTERNS` or a regular expression.
        special_tokens: spelling -> id; ids between those of the file and these stay unused.

    Raises:
        ValueError: a line that is not such a pair, a rank or token that is there twice, a byte that is missing, or a
            special token whose id is taken.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        try:
            spelled, rank = line.split(" ")
            token, id_ = base64.b64decode(spelled, validate=True), int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(
                f"line {number} is {line[:60]!r}; it should be a token in base64, a blank and a rank"
            ) from error
        if not token or id_ < 0 or token in ranks:
            raise ValueError(f"line {number} is {line[:60]!r}: the token is empty or there twice, or the rank below 0")
        ranks[token] = id_
    special = dict(special_tokens or {})
    tokens = _by_id(
        {**ranks, **{spelling.encode(): id_ for spelling, id_ in special.items()}}, len(ranks) + len(special)
    )
    missing = [byte for byte in BYTE_ALPHABET.symbols if byte not in ranks]
    if missing:
        raise ValueError(f"the byte {missing[0]!r} is not among the tokens; texts with it could not be encoded")
    # Every two tokens that spell a third are a merge.
    merges = [
        (ranks[token[:at]], ranks[token[at:]], id_)
        for token, id_ in sorted(ranks.items(), key=lambda item: item[1])
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]
    return Model(
        make_pre_tokenizer("byte", pattern, unicode),
        BYTE_ALPHABET,
        tokens,
        np.array(merges, np.int32).reshape(-1, 3),
        {},
        tuple(AddedToken(spelling, id_) for spelling, id_ in special.items()),
        ignore_merges=True,
        ranked_by="token",
    )


def _by_id(ids: Mapping[bytes, int], expected: int) -> list[bytes]:
    """Returns the tokens in the order of their ids; an id without a token is empty."""
    tokens = [b""] * (max(ids.values(), default=-1) + 1)
    for token, id_ in ids.items():
        if tokens[id_]:
            raise ValueError(f"the id {id_} is given to {tokens[id_]!r} and to {token!r}")
        tokens[id_] = token
    if len(ids) != expected:
        raise ValueError("a special token is spelled like a token of the file")
    return tokens


def write_tiktoken(model: Model) -> str:
    """Returns the text of a `.tiktoken` file; special tokens and the pattern are not in it.

    Raises:
        NotExpressibleError: the merges mean another thing as ranks.
    """
    if model.alphabet.kind != "byte":
        raise NotExpressibleError("a .tiktoken file holds bytes, and this tokenizer is of kind char")
    if any(not token.special for token in model.added_tokens):
        raise NotExpressibleError("a .tiktoken file has no added tokens that are not special")
    if model.ranked_by == "merge":
        check_ranks_equal_merges(model)
    added = {token.id for token in model.added_tokens}
    return "".join(
        f"{base64.b64encode(token).decode()} {id_}\n"
        for id_, token in enumerate(model.tokens)
        if id_ not in added and token
    )


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


def read_subword_nmt(codes: str, special_tokens: SpecialTokens | None = None) -> Model:
    """Returns the model of subword-nmt codes: kind `char`, words at blanks.

    The codes say nothing of ids: characters come first in the order of their code points, then what the merges make,
    then the special tokens. Characters that stand in no merge are unknown.

    Raises:
        ValueError: a version that is neither 0.1 (marker apart) nor 0.2 (glued), or a line that is not two symbols.
    """
    first, *lines = codes.splitlines() or [""]
    version = first.removeprefix("#version:").strip() if first.startswith("#version:") else "0.1"
    if version not in _CODES_VERSIONS:
        raise ValueError(f"codes of version {version!r} are unknown; this build reads 0.1 and 0.2")
    if not first.startswith("#version:"):
        lines = [first, *lines]
    placement = _CODES_VERSIONS[version]
    pairs: dict[tuple[bytes, bytes], bytes] = {}
    for number, line in enumerate(lines, 1):
        sides = line.strip("\r\n ").split(" ")
        if line and len(sides) != 2:
            raise ValueError(f"code {number} is {line[:60]!r}; a code is two symbols with a blank between")
        if line:
            left, right = map(_marked, sides)
            pairs.setdefault((left, right), left + right)  # Of equal ones subword-nmt takes the first.
    made = dict.fromkeys(pairs.values())
    base = {side for pair in pairs for side in pair if side not in made}
    if placement == "apart":
        base.add(MARKER)
    for symbol in sorted(base):
        if len(symbol.removesuffix(MARKER).decode()) > 1:
            raise ValueError(f"the symbol {symbol.replace(MARKER, b'</w>').decode()!r} is used before a code makes it")
    alphabet = Alphabet("char", tuple(sorted(base)), _END_OF_WORD, placement)
    tokens = [*alphabet.symbols, *made]
    ids = {token: id_ for id_, token in enumerate(tokens)}
    merges = [(ids[left], ids[right], ids[both]) for (left, right), both in pairs.items()]
    special = list_special_tokens(special_tokens or {})
    return Model(
        make_pre_tokenizer("char"),
        alphabet,
        [*tokens, *(spelling.encode() for spelling in special)],
        np.array(merges, np.int32).reshape(-1, 3),
        {role: given if isinstance(given, str) else list(given) for role, given in (special_tokens or {}).items()},
        tuple(AddedToken(spelling, len(tokens) + i) for i, spelling in enumerate(special)),
    )


def _marked(symbol: str) -> bytes:
    return symbol.removesuffix(_END_OF_WORD).encode() + MARKER if symbol.endswith(_END_OF_WORD) else symbol.encode()


def write_subword_nmt(model: Model) -> str:
    """Returns the text of subword-nmt codes, version 0.1 where the marker stands apart and 0.2 where it is glued.

    Raises:
        NotExpressibleError: kind `byte`, another marker than `</w>`, a normalisation, or a symbol whose text holds it.
    """
    alphabet = model.alphabet
    if (
        alphabet.kind != "char"
        or model.pre_tokenizer != make_pre_tokenizer("char")
        or alphabet.end_of_word != _END_OF_WORD
    ):
        raise NotExpressibleError(
            "subword-nmt codes are of kind char, cut words at blanks, normalise nothing, and mark ends with </w>"
        )
    spelled = []
    for id_, token in enumerate(model.tokens):
        text = token.replace(MARKER, _END_OF_WORD.encode()).decode()
        if _marked(text) != token and id_ in model.merges:
            raise NotExpressibleError(f"the symbol {text!r} holds </w> where no word ends")
        spelled.append(text)
    version = next(version for version, placement in _CODES_VERSIONS.items() if placement == alphabet.placement)
    return f"#version: {version}\n" + "".join(
        f"{spelled[left]} {spelled[right]}\n" for left, right, _ in model.merges.tolist()
    )
