r"""Finds alternatives that regex-syntax 0.8, below the engine of tiktoken 0.14, rewrites to match other texts.

If all alternatives begin alike, the library reads that start once: `a+a|a+b` becomes `a+(?:a|b)`. The first tries each
length of `a+` for `a` before it tries `b`, and matches the `aa` of `aab`. The second tries both for the longest `a+`,
and matches `aab`. Only a start that matches in one way makes no difference.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import regex

from bpe_core.pretokenize.repeat_rewrites import Node

_COMPARED = "".join(chr(code) for code in range(1 << 16) if not 0xD800 <= code <= 0xDFFF)
"""Sets of characters that are equal among these are taken for equal."""


def have_common_start(alternatives: Sequence[Node], spellings: Mapping[str, str]) -> bool:
    """Returns whether alternatives all begin with parts that are equal and can match the same text in several ways.

    Args:
        alternatives: the nodes.
        spellings: how the pattern writes what matches one character, by the key of its node.
    """
    if len(alternatives) < 2 or any(node[0] != "concatenation" or _is_hard(node) for node in alternatives):
        return False
    lists = [_flatten(node) for node in alternatives]
    for parts in zip(*lists, strict=False):
        first, *others = parts
        if any(_name_shape(node) != _name_shape(first) for node in others):
            return False
        if any(_canonicalize(node, spellings) != _canonicalize(first, spellings) for node in others):
            return False
        if not _matches_in_one_way(first):
            return True
    return False


def _flatten(node: Node) -> list[Node]:
    """Returns the parts of a concatenation, with those of concatenations inside of it."""
    if node[0] != "concatenation":
        return [node]
    return [part for inner in node[1] for part in _flatten(inner)]


def _is_hard(node: Node) -> bool:
    """Returns whether tiktoken's engine itself matches a node, and does not leave it to the library below."""
    if node[0] == "assertion":
        return isinstance(node[1], int)
    if node[0] in ("atomic", "reference"):
        return True
    return any(map(_is_hard, _list_children(node)))


def _list_children(node: Node) -> Sequence[Node]:
    if node[0] in ("concatenation", "alternatives"):
        return list(node[1])
    return [node[1]] if node[0] in ("repeat", "group", "atomic") else []


def _matches_in_one_way(node: Node) -> bool:
    """Returns whether a node has at most one match at each place of a text."""
    if node[0] == "alternatives":
        return _is_one_character(node)
    if node[0] == "repeat" and node[2] != node[3]:
        return False
    return all(map(_matches_in_one_way, _list_children(node)))


def _is_one_character(node: Node) -> bool:
    return node[0] == "character" or (node[0] == "alternatives" and all(map(_is_one_character, node[1])))


def _name_shape(node: Node) -> Any:
    """Returns a node without its characters, to avoid most comparisons of sets."""
    if _is_one_character(node):
        return "character"
    if node[0] == "repeat":
        return _name_shape(node[1]) if node[2] == node[3] == 1 else (_name_shape(node[1]), *node[2:])
    if node[0] in ("concatenation", "alternatives"):
        parts = _flatten(node) if node[0] == "concatenation" else node[1]
        return node[0], tuple(map(_name_shape, parts))
    return ("group", id(node)) if node[0] == "group" else node


def _canonicalize(node: Node, spellings: Mapping[str, str]) -> Any:
    """Returns a value that is equal for nodes that the library takes for equal, however their sets are written."""
    if _is_one_character(node):
        return "".join(sorted(set().union(*(_find_written_members(spellings[key]) for key in _gather_keys(node)))))
    if node[0] == "repeat":
        inner = _canonicalize(node[1], spellings)
        return inner if node[2] == node[3] == 1 else (inner, *node[2:])
    if node[0] in ("concatenation", "alternatives"):
        parts = _flatten(node) if node[0] == "concatenation" else node[1]
        return node[0], tuple(_canonicalize(part, spellings) for part in parts)
    return ("group", id(node)) if node[0] == "group" else node


def _gather_keys(node: Node) -> list[str]:
    return [node[1]] if node[0] == "character" else [key for inner in node[1] for key in _gather_keys(inner)]


@cache
def _find_written_members(spelling: str) -> frozenset[str]:
    # Only version 1 of the syntax knows intersections.
    return frozenset(regex.findall(spelling, _COMPARED, regex.V1 if "&&" in spelling else 0))
