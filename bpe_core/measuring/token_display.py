"""Tokens and texts as people read them: on one line, with every character visible.

Three levels, each built on the one before: `escape_unprintable` (the audit), `show_on_one_line` (`inspect`, and texts
in the report) and `show_with_spaces` (tables in the report). `pipelines/report/page.js` does the same in JavaScript.
"""

from bpe_core.pretokenize.unicode_categories import load_printable_characters
from bpe_core.tokenizer import Tokenizer


def escape_unprintable(text: bytes | str) -> str:
    r"""Returns text with Python's escapes for bytes that are not UTF-8 and for characters that cannot be printed.

    Spaces stay; other white space is escaped.

    >>> print(escape_unprintable(b"a b\n\xe6"), escape_unprintable("\u200d"))
    a b\n\xe6 \u200d
    """
    decoded = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    printable = load_printable_characters()
    return "".join(c if printable[ord(c)] else c.encode("unicode_escape").decode() for c in decoded)


def show_on_one_line(text: bytes | str) -> str:
    r"""Returns text as `escape_unprintable` does, but with ⏎ for a line feed and ⇥ for a tab.

    >>> print(show_on_one_line(b"a b\n\t\xe6"))
    a b⏎⇥\xe6
    """
    decoded = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return escape_unprintable(decoded.replace("\n", "⏎").replace("\t", "⇥"))


def show_with_spaces(text: bytes | str) -> str:
    """Returns text as `show_on_one_line` does, with ␣ for a space, so that spaces at its ends can be seen.

    >>> show_with_spaces(b" the")
    '␣the'
    """
    return show_on_one_line(text).replace(" ", "␣")


def escape_token(tokenizer: Tokenizer, id_: int) -> str:
    """Returns the token of an id as `escape_unprintable` does, with the end-of-word marker spelled out.

    An id without a token (a gap in a `.tiktoken` vocabulary) gives an empty string.
    """
    return escape_unprintable(tokenizer.alphabet.write_out_marker(tokenizer.model.tokens[id_]))


def list_shown_tokens(tokenizer: Tokenizer) -> list[str]:
    """Returns the token of every id, from id 0, as `show_with_spaces` does; an id without a token gives ''."""
    return [show_with_spaces(tokenizer.alphabet.write_out_marker(token)) for token in tokenizer.token_bytes()]
