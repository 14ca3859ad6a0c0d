"""Renders the report's page: one HTML file that needs no other file and can encode a text that is typed.

It is made of `page.html.j2`, `page.css` and `page.js`, which encodes with the tokenizer's own tables and merges.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bpe_core.measuring.token_display import show_on_one_line
from bpe_core.merging.alphabet import MARKER
from bpe_core.pretokenize.unicode_categories import CodePointSet, load_word_characters
from bpe_core.pretokenize.unicode_normalization import load_normalizable_characters, read_normalization_data
from bpe_core.tokenizer import Tokenizer
from pipelines.report import charts
from pipelines.report.figures import Figure

_NUM_MERGES_SHOWN = 20  # the first ones, and the last ones
_GLUED = 0x110000  # The same number as in page.js.


def render_page(
    tokenizer: Tokenizer,
    facts: dict[str, Any],
    figures: Sequence[Figure],
    samples: Sequence[tuple[str, str]],
    counts: Sequence[int] | None,
) -> str:
    """Returns the HTML of a report.

    Args:
        tokenizer: The tokenizer that the page encodes with.
        facts: What the head of the page says about the tokenizer.
        figures: All figures.
        samples: Title and text of each sample text.
        counts: How often each pair occurred when it was merged, one per merge, if known.
    """
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
    data = json.dumps(_make_encoder_data(tokenizer, counts), separators=(",", ":")).replace("<", "\\u003c")
    return environment.get_template("page.html.j2").render(
        facts=facts,
        figures={figure.name: figure for figure in figures},
        samples=[(title, _show_tokens(tokenizer, text)) for title, text in samples],
        first_text=samples[0][1] if samples else "",
        data=Markup(data),
        can_encode=tokenizer.pre_tokenizer.is_compiled,
        notes=_list_notes(tokenizer),
        dashes=charts.DASHES,
        num_ends=_NUM_MERGES_SHOWN,
        style=Markup((folder / "page.css").read_text(encoding="utf-8")),
        script=Markup((folder / "page.js").read_text(encoding="utf-8")),
        markup=Markup,
    )


def _show_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    """Returns the tokens of a text as the page shows them, with a line break after each line feed."""
    return [show_on_one_line(token).replace("⏎", "⏎\n") for token in tokenizer.tokenize(text)]


def _list_notes(tokenizer: Tokenizer) -> list[str]:
    """Returns notes for a reader who types a text: where the page may differ from tokenmill."""
    notes = []
    if tokenizer.alphabet.kind == "char":
        notes.append("A tokenizer of kind char does not keep the white space between words.")
    return notes


def _make_encoder_data(tokenizer: Tokenizer, counts: Sequence[int] | None) -> dict[str, Any]:
    """Returns the JSON content that `page.js` encodes with; arrays are in base64, little-endian."""
    pre_tokenizer, model = tokenizer.pre_tokenizer, tokenizer.model
    tokens = tokenizer.token_bytes()
    lower_case = read_normalization_data().lower_case if pre_tokenizer.lowercase else {}
    finds_words = any(token.single_word for token in tokenizer.added_tokens)
    return {
        "kind": tokenizer.alphabet.kind,
        "keep_gaps": pre_tokenizer.keep_gaps,
        "add_prefix_space": pre_tokenizer.add_prefix_space,
        "unicode": pre_tokenizer.unicode,
        "normalizable": None if pre_tokenizer.unicode == "none" else _format_set(load_normalizable_characters()),
        "word_characters": _format_set(load_word_characters()) if finds_words else None,
        "lower": {chr(code): "".join(map(chr, lower)) for code, lower in lower_case.items()} or None,
        "ranked_by": model.ranked_by,
        "ignore_merges": model.ignore_merges,
        "end_of_word": tokenizer.alphabet.end_of_word,
        "unknown_id": tokenizer.special_id("unk"),
        "marker": tokenizer.base_ids.get(MARKER) if tokenizer.alphabet.kind == "char" else None,
        "base_ids": _list_base_ids(tokenizer),
        "added_tokens": [
            {**token._asdict(), "match": pre_tokenizer.normalize(token.content) if token.normalized else token.content}
            for token in tokenizer.added_tokens
        ],
        "tokens": base64.b64encode(b"".join(tokens)).decode(),
        "token_ends": _encode_base64(np.cumsum([len(token) for token in tokens]), "<i4"),
        "merges": _encode_base64(tokenizer.merges, "<i4"),
        "counts": None if counts is None else _encode_base64(np.array(counts), "<f8"),
        "scanner": None
        if pre_tokenizer.tables is None
        else {
            "transitions": _encode_base64(pre_tokenizer.tables.transitions, "<i4"),
            "start_states": _encode_base64(pre_tokenizer.tables.start_states, "<i4"),
            "block_starts": _encode_base64(pre_tokenizer.tables.block_starts, "<i4"),
            "classes": _encode_base64(pre_tokenizer.tables.classes, "u1"),
        },
    }


def _format_set(members: CodePointSet) -> str:
    """Returns a set of characters as JavaScript writes it in a regular expression, with the brackets."""
    edges = np.flatnonzero(np.diff(members, prepend=False, append=False)).reshape(-1, 2)
    return "[" + "".join(f"\\u{{{first:x}}}-\\u{{{end - 1:x}}}" for first, end in edges.tolist()) + "]"


def _encode_base64(numbers: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype).tobytes()).decode()


def _list_base_ids(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Returns pairs of base symbol and id: the symbol is a byte (kind `byte`) or a code point (kind `char`).

    A character with the end-of-word marker glued to it has `_GLUED` added to its code point.
    """
    if tokenizer.alphabet.kind == "byte":
        return [(symbol[0], id_) for symbol, id_ in tokenizer.base_ids.items()]
    return [
        (ord(symbol.removesuffix(MARKER).decode()) + (_GLUED if symbol.endswith(MARKER) else 0), id_)
        for symbol, id_ in tokenizer.base_ids.items()
        if symbol != MARKER
    ]
