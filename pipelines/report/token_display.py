"""How tokens and texts are written for people: on one line, with what cannot be seen spelled out."""

from bpe_core.tokenizer import Tokenizer


def visible(token: bytes | str) -> str:
    """Returns a token on one line, with what cannot be seen written out; blanks stay.

    >>> visible(b"a\\n\\xe6"), visible("\\x00")
    ('a⏎\\\\xe6', '\\\\x00')
    """
    readable = token.decode(errors="backslashreplace") if isinstance(token, bytes) else token
    return "".join(map(_visible_character, readable))


def _visible_character(character: str) -> str:
    if character in "\n\t":
        return "⏎" if character == "\n" else "⇥"
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def written(token: bytes | str) -> str:
    """Returns a token where blanks at its ends must be seen too."""
    return visible(token).replace(" ", "␣")


def written_tokens(tokenizer: Tokenizer) -> list[str]:
    """Returns every id's token as it is written; an id that is not used has an empty one."""
    return [written(tokenizer.tokens([id_])[0]) if token else "" for id_, token in enumerate(tokenizer.token_bytes())]
