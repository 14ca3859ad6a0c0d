"""A slow, obvious twin of `bpe_core.encoding.wordpiece`."""

from collections.abc import Mapping


def encode_word(word: str, ids: Mapping[str, int], prefix: str, unknown: int, max_characters: int) -> list[int]:
    """Returns the ids of a word: tries every end of each token, the longest first."""
    if len(word) > max_characters:
        return [unknown]
    found = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            token = (prefix if start > 0 else "") + word[start:end]
            if token in ids:
                found.append(ids[token])
                start = end
                break
        else:
            return [unknown]
    return found
