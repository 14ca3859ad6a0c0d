"""Slow, obvious twins of the compiled normalizers of SentencePiece models."""

from collections.abc import Mapping, Sequence


def list_keys(charsmap: bytes) -> dict[str, str]:
    """Returns key -> replacement of a precompiled charsmap, found by walking its whole trie."""
    size = int.from_bytes(charsmap[:4], "little")
    units = [int.from_bytes(charsmap[at : at + 4], "little") for at in range(4, 4 + size, 4)]
    replacements = charsmap[4 + size :]
    keys: dict[str, str] = {}

    def walk(node: int, key: bytes) -> None:
        for byte in range(1, 256):
            place = node ^ byte
            if place >= len(units) or units[place] & 0x800000FF != byte:
                continue
            child = place ^ find_offset(units[place])
            if units[place] & 0x100:
                start = units[child] & 0x7FFFFFFF
                keys[(key + bytes([byte])).decode()] = replacements[start : replacements.index(b"\0", start)].decode()
            walk(child, key + bytes([byte]))

    def find_offset(unit: int) -> int:
        return unit >> 10 << (8 if unit & 0x200 else 0)

    if units:
        walk(find_offset(units[0]), b"")
    return keys


def normalize_like_sentencepiece(
    text: str,
    keys: Mapping[str, str],
    *,
    adds_blank: bool,
    removes_blanks: bool,
    is_suffix: bool,
    symbols: Sequence[str] = (),
) -> str:
    """Returns a text normalized as SentencePiece does it, with blanks escaped."""
    items = []
    while text:
        symbol = max((symbol for symbol in symbols if text.startswith(symbol)), key=len, default="")
        key = max((key for key in keys if text.startswith(key)), key=len, default="")
        taken = symbol or key or text[0]
        items.append(taken if symbol or not key else keys[key])
        text = text[len(taken) :]
    while removes_blanks and items and items[0] == " ":
        items.pop(0)
    if not items:
        return ""
    written = ""
    after_blank = removes_blanks
    for item in items:
        kept = item.lstrip(" ") if after_blank else item
        written += kept
        if kept:
            after_blank = removes_blanks and kept.endswith(" ")
    written = written.replace(" ", "▁")
    if adds_blank and not is_suffix:
        written = "▁" + written
    if removes_blanks:
        written = written.rstrip("▁")
    return written + "▁" if adds_blank and is_suffix else written


def replace_by_clusters(clusters: Sequence[str], keys: Mapping[str, str]) -> str:
    """Returns a text, given as grapheme clusters, normalized as Hugging Face's `Precompiled` does it."""

    def find_shortest(part: str) -> str | None:
        found = min((key for key in keys if part.startswith(key)), key=len, default=None)
        return None if found is None else keys[found]

    written = ""
    for cluster in clusters:
        whole = find_shortest(cluster) if len(cluster.encode()) < 6 else None
        parts = [find_shortest(character) for character in cluster]
        characters = [character if part is None else part for character, part in zip(cluster, parts, strict=True)]
        written += "".join(characters) if whole is None else whole
    return written
