"""Codes files of subword-nmt: one merge per line, as two symbols with a space between.

The codes have no ids and no special tokens. Their tool splits text at white space and marks the end of a word `</w>`.
Only a line feed ends a line; spaces and carriage returns around a line are dropped, as subword-nmt does.
"""

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, SpecialTokens, list_special_tokens, make_pre_tokenizer
from bpe_core.formats.lines import split_lines
from bpe_core.merging.alphabet import MARKER, Alphabet, Placement

_END_OF_WORD = "</w>"
_PLACEMENT_OF_VERSION: dict[str, Placement] = {"0.1": "apart", "0.2": "glued"}
"""Version 0.1 has the end-of-word marker as a symbol of its own, 0.2 as part of a word's last character."""


def read_subword_nmt(codes: str, special_tokens: SpecialTokens | None = None) -> Model:
    r"""Returns the model in a codes file, which is of kind `char` and splits text at white space.

    Ids go to characters by code point, then to the tokens that merges make, in their order, then to special tokens. A
    character that occurs in no merge is unknown.

    Args:
        codes: The file's text.
        special_tokens: Role -> spelling.

    Raises:
        ValueError: The version is neither 0.1 nor 0.2, a line is not two symbols, or a symbol of several characters
            is used before a merge makes it.

    >>> model = read_subword_nmt("#version: 0.2\nl o\nlo w</w>\n")
    >>> [model.alphabet.spell(token) for token in model.tokens]
    ['l', 'o', 'w</w>', 'lo', 'low</w>']
    """
    first, *lines = split_lines(codes) or [""]
    version = first.removeprefix("#version:").strip() if first.startswith("#version:") else "0.1"
    if version not in _PLACEMENT_OF_VERSION:
        raise ValueError(f"the codes are of version {version!r}; this build reads 0.1 and 0.2")
    if not first.startswith("#version:"):
        lines = [first, *lines]
    placement = _PLACEMENT_OF_VERSION[version]
    pairs: dict[tuple[bytes, bytes], bytes] = {}
    for number, line in enumerate(lines, 1):
        sides = _split_merge(line)
        if sides == [""]:
            continue
        if len(sides) != 2:
            raise ValueError(f"merge {number} is {line[:60]!r}; a merge is two symbols with a space between")
        left, right = map(_replace_end_of_word, sides)
        pairs.setdefault((left, right), left + right)  # If a merge repeats, subword-nmt takes the first.
    made = dict.fromkeys(pairs.values())
    base = {side for pair in pairs for side in pair if side not in made}
    if placement == "apart":
        base.add(MARKER)
    for symbol in sorted(base):
        if len(symbol.removesuffix(MARKER).decode()) > 1:
            shown = symbol.replace(MARKER, _END_OF_WORD.encode()).decode()
            raise ValueError(f"the symbol {shown!r} is used before a merge makes it")
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
    """Returns the text of a codes file, of the version that has the model's placement of the end-of-word marker.

    Raises:
        NotExpressibleError: The model is of kind `byte`, has no merges, another marker than `</w>` or a normalizer, or
            a symbol holds `</w>` inside a word, or a space or a line break that subword-nmt would not read.
    """
    alphabet = model.alphabet
    if (
        alphabet.kind != "char"
        or model.pre_tokenizer != make_pre_tokenizer("char")
        or alphabet.end_of_word != _END_OF_WORD
    ):
        raise NotExpressibleError(
            "subword-nmt codes are of kind char, split text at white space, do not normalize it, and mark the end of a "
            "word with </w>; this tokenizer differs"
        )
    if not len(model.merges):
        raise NotExpressibleError(
            "subword-nmt refuses codes without merges, and this tokenizer has none; learn at least one merge"
        )
    spelled = []
    for id_, token in enumerate(model.tokens):
        text = token.replace(MARKER, _END_OF_WORD.encode()).decode()
        if _replace_end_of_word(text) != token and id_ in model.merges:
            raise NotExpressibleError(f"the symbol {text!r} holds </w> inside a word")
        spelled.append(text)
    version = next(v for v, placement in _PLACEMENT_OF_VERSION.items() if placement == alphabet.placement)
    lines = []
    for left, right, _ in model.merges.tolist():
        line = f"{spelled[left]} {spelled[right]}"
        if "\n" in line or _split_merge(line) != [spelled[left], spelled[right]]:
            raise NotExpressibleError(
                f"subword-nmt would not read the merge of {spelled[left]!r} and {spelled[right]!r}: a space or a line "
                "break in a symbol ends it"
            )
        lines.append(f"{line}\n")
    return f"#version: {version}\n" + "".join(lines)


def _split_merge(line: str) -> list[str]:
    """Returns the symbols on a line, as subword-nmt separates them."""
    return line.strip("\r\n ").split(" ")


def _replace_end_of_word(symbol: str) -> bytes:
    """Returns the bytes of a symbol, with `MARKER` in place of `</w>` at its end."""
    return symbol.removesuffix(_END_OF_WORD).encode() + MARKER if symbol.endswith(_END_OF_WORD) else symbol.encode()
