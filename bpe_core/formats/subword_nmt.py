"""The codes file of subword-nmt: one merge on each line."""

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, SpecialTokens, list_special_tokens, make_pre_tokenizer
from bpe_core.merging.alphabet import MARKER, Alphabet, Placement

_END_OF_WORD = "</w>"
_CODES_VERSIONS: dict[str, Placement] = {"0.1": "apart", "0.2": "glued"}


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


def _marked(symbol: str) -> bytes:
    return symbol.removesuffix(_END_OF_WORD).encode() + MARKER if symbol.endswith(_END_OF_WORD) else symbol.encode()
