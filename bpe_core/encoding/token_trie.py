"""A trie of tokens for kernels: finds the tokens that a text starts with, one byte at a time.

It is a double-array trie. A node is an index, and its child for a byte is the node `base ^ byte`, if that node names it
as its parent. So a step reads one place in memory, however many children a node has.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s, UInt8s, device_function, flatten_bytes, kernel

ROOT = 0
"""The root of a trie: the node that is reached before any byte was read."""

NO_NODE = -1
"""What stands for a node that does not exist, and for the id of a node at which no token ends."""

_NODE_BLOCK = 256  # The children of a node lie in one block of this size: only the last byte of their indexes differs.
_MAX_BLOCKS_SEARCHED = 16
_BASE, _PARENT, _ID, _ITEMS = 0, 1, 2, 4
_NO_PARENT = -2  # of the root; a free node has `NO_NODE` as its parent.


class TokenTrie(NamedTuple):
    """The trie of a vocabulary.

    Attributes:
        nodes: int32, four items per node: the base of its children, its parent, the id of the token that ends at it or
            `NO_NODE`, and one that is not used.
    """

    nodes: Int32s


@device_function
def find_child(trie: TokenTrie, node: Any, byte: Any) -> Any:
    """Returns the node that a byte leads to from a node, or `NO_NODE`."""
    child = np.int64(trie.nodes[np.uint64(_ITEMS * node)]) ^ np.int64(byte)
    return child if trie.nodes[np.uint64(_ITEMS * child + _PARENT)] == node else np.int64(NO_NODE)


@device_function
def get_token_id(trie: TokenTrie, node: Any) -> Any:
    """Returns the id of the token that ends at a node, or `NO_NODE`."""
    return np.int64(trie.nodes[np.uint64(_ITEMS * node + _ID)])


def make_token_trie(ids: Mapping[bytes, int]) -> TokenTrie:
    """Returns the trie of tokens, given as token -> id.

    >>> trie = make_token_trie({b"a": 5, b"ab": 6})
    >>> find_node(trie, b"ab") == NO_NODE, find_node(trie, b"b") == NO_NODE
    (False, True)
    """
    tokens = sorted(ids)
    data, offsets = flatten_bytes(pa.array(tokens, pa.large_binary()))
    token_ids = np.array([ids[token] for token in tokens], np.int32)
    depths = 1 + max(map(len, tokens), default=0)
    stack = np.empty(4 * (1 + _NODE_BLOCK * depths), np.int64)
    blocks = 2 + data.size // _NODE_BLOCK
    while True:
        nodes = np.full(_ITEMS * _NODE_BLOCK * blocks, NO_NODE, np.int32)
        if _place_nodes(data, offsets, token_ids, nodes, stack):
            return TokenTrie(nodes)
        blocks *= 2


def find_node(trie: TokenTrie, token: bytes) -> int:
    """Returns the node of a token or of the start of one, or `NO_NODE`."""
    return int(_find_node(trie, np.frombuffer(token, np.uint8)))


@kernel
def _find_node(trie: TokenTrie, token: UInt8s) -> Any:
    node = np.int64(ROOT)
    for byte in token:
        if node != NO_NODE:
            node = find_child(trie, node, byte)
    return node


@kernel
def _place_nodes(data: UInt8s, offsets: Int64s, ids: Int32s, nodes: Int32s, stack: Int64s) -> Any:
    """Writes the nodes of sorted tokens, depth first; returns whether there was room for them.

    Args:
        data: the tokens, one after the other.
        offsets: where each token starts in `data`, and one more for the end.
        ids: the id of each token.
        nodes: as in `TokenTrie`, with all nodes free.
        stack: memory for four numbers per node that waits for its children: the node, the first and the last of the
            tokens that start with it, and their common length.
    """
    nodes[_PARENT] = _NO_PARENT
    stack[0], stack[1], stack[2], stack[3] = ROOT, 0, ids.size, 0
    waiting = 1
    first_free, in_use = np.int64(1), np.int64(_NODE_BLOCK)
    while waiting > 0:
        waiting -= 1
        node, first, stop, depth = stack[4 * waiting : 4 * waiting + 4]
        nodes[_ITEMS * node + _BASE] = 0
        if first < stop and offsets[first + 1] - offsets[first] == depth:
            nodes[_ITEMS * node + _ID] = ids[first]
            first += 1
        if first == stop:
            continue
        # Put each child on the stack, with the byte that leads to it in place of its index.
        before, token = waiting, first
        while token < stop:
            byte, start = data[offsets[token] + depth], token
            while token < stop and data[offsets[token] + depth] == byte:
                token += 1
            child = 4 * waiting
            stack[child], stack[child + 1], stack[child + 2], stack[child + 3] = byte, start, token, depth + 1
            waiting += 1
        while nodes[_ITEMS * first_free + _PARENT] != NO_NODE:
            first_free += 1
            if _ITEMS * first_free == nodes.size:
                return False
        base = _find_base(nodes, stack[4 * before : 4 * waiting], first_free, in_use)
        if base < 0:
            return False
        nodes[_ITEMS * node + _BASE] = base
        for item in range(4 * before, 4 * waiting, 4):
            child = base ^ stack[item]
            nodes[_ITEMS * child + _PARENT] = node
            stack[item] = child
            in_use = max(in_use, child + 1)
    return True


@device_function
def _find_base(nodes: Int32s, children: Int64s, first_free: Any, in_use: Any) -> Any:
    """Returns a base for which the nodes of all children are free, or -1 if there is no room.

    Args:
        nodes: as in `TokenTrie`.
        children: four numbers per child, of which the first is its byte.
        first_free: the first node that is free.
        in_use: one more than the last node that is not.
    """
    node = first_free
    if children.size > 4:  # Looking at all free nodes would take long.
        node = max(node, in_use - _MAX_BLOCKS_SEARCHED * _NODE_BLOCK)
    while _ITEMS * node < nodes.size:
        base = node ^ children[0]
        fits = True
        for item in range(0, children.size, 4):
            if nodes[_ITEMS * (base ^ children[item]) + _PARENT] != NO_NODE:
                fits = False
                break
        if fits:
            return base
        node += 1
    return -1
