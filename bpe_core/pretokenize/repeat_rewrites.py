r"""Finds repeats that fancy-regex 0.19, the engine of tiktoken 0.14, rewrites to something that matches other texts.

The engine rewrites repeats so that they backtrack less (`optimize.rs` in its source). Three of its rewrites are wrong:

* `X+Y?X+` becomes `X+(?:YX+)?`, which a single `X` matches. `X+Y??X*` takes `Y` first, and `X*Y?X+` tries some lengths
  in another order.
* `(?:X+(?:YX+)?)+` becomes `X+(?:YX+)*`, in which a `Y` needs no `X` of its own before it.
* `(X+)?` becomes `(X*)`, whose group takes part even where it is empty, so that `\1` matches.
"""

from typing import Any

Node = tuple[Any, ...]
"""A part of a pattern, as the engine sees it. Non-capturing groups are left out. Equal parts are equal nodes.

    ("character", key)
    ("assertion", position)
    ("group", node), ("atomic", node), ("reference", number)
    ("concatenation", nodes), ("alternatives", nodes)
    ("repeat", node, least, most or None, whether it is greedy)
"""


def make_concatenation(nodes: list[Node]) -> Node:
    """Returns the node of parts that follow each other."""
    return nodes[0] if len(nodes) == 1 else ("concatenation", nodes)


def make_repeat(node: Node, least: int, most: int | None, *, greedy: bool) -> tuple[Node, bool]:
    """Returns the node of a repeat, and whether the engine merges it with a repeat that a capturing group holds."""
    inner = node[1] if node[0] == "group" else node
    if _is_simple(inner) and greedy and least <= 1 and most in (1, None) and (least, most) != (1, 1):
        most = 1 if inner[3] == most == 1 else None
        merged = ("repeat", inner[1], min(least, inner[2]), most, True)
        return (("group", merged), True) if node[0] == "group" else (merged, False)
    return ("repeat", node, least, most, greedy), False


def is_wrongly_rewritten(node: Node) -> bool:
    """Returns whether the engine rewrites this node, which is a concatenation or a repeat, and changes its matches."""
    if node[0] == "concatenation":
        return any(_is_wrong_triple(*node[1][at : at + 3]) for at in range(len(node[1]) - 2))
    if node[0] != "repeat" or not _is_unbounded(node) or node[1][0] != "concatenation":
        return False
    parts = node[1][1]
    if len(parts) == 3:
        return _is_triple(*parts) and bool(parts[0][2] >= parts[2][2])
    if len(parts) != 2 or parts[1][0] != "repeat" or parts[1][2:] != (0, 1, True):
        return False
    tail = parts[1][1]
    return tail[0] == "concatenation" and len(tail[1]) == 2 and _have_same_part(parts[0], tail[1][1])


def _is_simple(node: Node) -> bool:
    """Returns whether a node is one of the greedy repeats `?`, `*` and `+`."""
    return node[0] == "repeat" and node[2:] in ((0, 1, True), (0, None, True), (1, None, True))


def _is_unbounded(node: Node) -> bool:
    return _is_simple(node) and node[3] is None


def _have_same_part(left: Node, right: Node) -> bool:
    return _is_unbounded(left) and _is_unbounded(right) and bool(left[1] == right[1])


def _is_triple(left: Node, middle: Node, right: Node) -> bool:
    """Returns whether the engine rewrites three parts that follow each other, such as those of `X+Y?X+`."""
    return middle[0] == "repeat" and middle[2] == 0 and middle[3] != 0 and _have_same_part(left, right)


def _is_wrong_triple(left: Node, middle: Node, right: Node) -> bool:
    if not _is_triple(left, middle, right):
        return False
    if left[2] == right[2] == 1 or not middle[4]:
        return True
    return bool(left[2] < right[2]) and not left[1][0] == middle[1][0] == "character"
