"""The report's page: one HTML file that holds everything that it needs, also to encode what is typed.

Made of `page.html.j2`, `page.css` and `page.js`, which encodes with the tokenizer's own tables and merges.
"""

import base64
import json
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bpe_core.measuring.token_display import show_on_one_line
from bpe_core.merging.alphabet import MARKER
from bpe_core.tokenizer import Tokenizer
from pipelines.report import charts
from pipelines.report.figures import Figure

_NUM_ENDS = 20  # merges shown from either end
_GLUED = 0x110000  # As in page.js.


def render(
    tokenizer: Tokenizer,
    facts: dict[str, Any],
    figures: Sequence[Figure],
    samples: Sequence[tuple[str, str]],
    counts: Sequence[int] | None,
) -> str:
    """Returns the HTML of a report, which holds everything that it needs."""
    import jinja2
    from markupsafe import Markup

    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    data = json.dumps(_encoder_data(tokenizer, counts), separators=(",", ":")).replace("<", "\\u003c")
    return environment.get_template("page.html.j2").render(
        facts=facts,
        figures={figure.name: figure for figure in figures},
        samples=[(title, _shown_tokens(tokenizer, text)) for title, text in samples],
        first_text=samples[0][1] if samples else "",
        data=Markup(data),
        can_encode=tokenizer.pre_tokenizer.is_compiled,
        notes=_notes(tokenizer),
        dashes=charts.DASHES,
        num_ends=_NUM_ENDS,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup((folder / "page.js").read_text(encoding="utf-8")),
        markup=Markup,
    )


def _shown_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return [show_on_one_line(token).replace("⏎", "⏎\n") for token in tokenizer.tokenize(text)]


def _notes(tokenizer: Tokenizer) -> list[str]:
    """Returns what a reader must know who types a text."""
    pre_tokenizer = tokenizer.pre_tokenizer
    notes = []
    if pre_tokenizer.unicode != "none":
        notes.append(
            f"Texts are put into {pre_tokenizer.unicode} first, by your browser; tokenmill does so by Unicode "
            f"{unicodedata.unidata_version}. Characters that only one of the two knows may differ."
        )
    if any(token.single_word for token in tokenizer.added_tokens):
        notes.append("Whether a letter stands beside an added token is decided by your browser's version of Unicode.")
    if tokenizer.alphabet.kind == "char":
        notes.append("Tokens of kind char leave out the blanks between words.")
    return notes


def _encoder_data(tokenizer: Tokenizer, counts: Sequence[int] | None) -> dict[str, Any]:
    """Returns what `page.js` encodes with, as JSON content; arrays in base64, little-endian."""
    pre_tokenizer, model = tokenizer.pre_tokenizer, tokenizer.model
    tokens = tokenizer.token_bytes()
    lower = replace(pre_tokenizer, unicode="none").normalize
    characters = map(chr, range(sys.maxunicode + 1)) if pre_tokenizer.lowercase else ()
    return {
        "kind": tokenizer.alphabet.kind,
        "keep_gaps": pre_tokenizer.keep_gaps,
        "unicode": pre_tokenizer.unicode,
        "lower": {c: lower(c) for c in characters if lower(c) != c} or None,
        "ranked_by": model.ranked_by,
        "ignore_merges": model.ignore_merges,
        "end_of_word": tokenizer.alphabet.end_of_word,
        "unknown_id": tokenizer.special_id("unk"),
        "marker": tokenizer.base_ids.get(MARKER) if tokenizer.alphabet.kind == "char" else None,
        "base_ids": _base_ids(tokenizer),
        "added_tokens": [
            {**token._asdict(), "match": pre_tokenizer.normalize(token.content) if token.normalized else token.content}
            for token in tokenizer.added_tokens
        ],
        "tokens": base64.b64encode(b"".join(tokens)).decode(),
        "token_ends": _base64(np.cumsum([len(token) for token in tokens]), "<i4"),
        "merges": _base64(tokenizer.merges, "<i4"),
        "counts": None if counts is None else _base64(np.array(counts), "<f8"),
        "scanner": None
        if pre_tokenizer.tables is None
        else {
            "moves": _base64(pre_tokenizer.tables.transitions, "<i4"),
            "first": _base64(pre_tokenizer.tables.start_states, "<i4"),
            "block": _base64(pre_tokenizer.tables.block_starts, "<i4"),
            "classes": _base64(pre_tokenizer.tables.classes, "u1"),
        },
    }


def _base64(numbers: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype).tobytes()).decode()


def _base_ids(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Returns the id of each byte, or of each code point; above `_GLUED`, of each with the marker glued to it."""
    if tokenizer.alphabet.kind == "byte":
        return [(symbol[0], id_) for symbol, id_ in tokenizer.base_ids.items()]
    return [
        (ord(symbol.removesuffix(MARKER).decode()) + (_GLUED if symbol.endswith(MARKER) else 0), id_)
        for symbol, id_ in tokenizer.base_ids.items()
        if symbol != MARKER
    ]
