r"""Compiles word patterns (regular expressions) to tables, by which `scanner` splits UTF-8 bytes into words.

The `regex` package defines what a pattern means. For patterns in the subset below, the tables split every text in the
same way, about twenty times faster. A pattern is compiled in four steps:

1. `_Parser` reads the expression into a syntax tree.
2. `_Nfa` turns the tree into a non-deterministic automaton (NFA). Its states are the points at which a backtracking
   matcher could be, and its `split` states prefer one of two ways.
3. `_divide_into_classes` groups the characters that no set of the pattern tells apart. A few dozen classes then replace
   1,114,112 code points.
4. `_build_dfa` builds a deterministic automaton (DFA). Each of its states is a list of NFA states in the order in which
   a backtracking matcher would try them. Where an NFA state accepts, the less preferred states after it are dropped. So
   the DFA finds the same match as such a matcher (Perl's leftmost-first rule; RE2 does the same), without backtracking.

A match ends *before* a character: whether it may end there depends on the class of that character as well. This is all
that a look-ahead at one character needs.

The subset: literals, sets and their intersections (`[a&&[^b]]`), `\p{..}`, `\s`, `\d`, groups, `(?i:..)` around ASCII
letters, alternatives, `? * + {m,n}`, their possessive forms where these cannot change what matches, and `(?!..)` or
`(?=..)` around one set at the end of an alternative.

A pattern may consist of several expressions, which are applied one after the other: each splits the words that the one
before has found.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int32s, Int64s, UInt8s
from bpe_core.pretokenize.unicode_categories import (
    NUM_CODE_POINTS,
    WHITE_SPACE,
    CodePointSet,
    load_category,
    make_code_point_set,
)
from bpe_core.pretokenize.unicode_scripts import is_script, load_script

NUM_COLUMNS = 256
"""The length of a row of a transition table."""

_BLOCK_SIZE = 128
_MAX_REPEATS = 64
_MAX_STATES = 4096
_MAX_CLASSES = 127  # With 128 ASCII characters and the end of the text they fill a row.


_ASCII_LETTERS = frozenset(string.ascii_letters)
_DECIMAL_DIGITS = frozenset(string.digits)
_CATEGORIES_WITH_CASE = ("L", "M", "Nl", "So")
"""The categories with characters that have an upper and a lower case. Beyond ASCII, these are left to `regex`."""


class UnsupportedPatternError(ValueError):
    """A pattern is outside the subset that can be compiled; the message says why."""


ENDS, STARTS = 1, 2
"""The two flags of a transition, see `PatternTables`."""


class PatternTables(NamedTuple):
    """The compiled expressions of a pattern.

    A state's row has 256 columns: 0 to 127 for the ASCII characters, from 128 on for the classes of all characters, and
    255 for the end of the text. A state is named by the index at which its row starts. State 0 is the dead state: no
    match can go on from there.

    Attributes:
        transitions: int32, the rows of all states one after the other. An item is `next_state << 2 | flags`. The flag
            `ENDS` says that the match may end before this character.
        chained_states: uint32, like `transitions`, but goes from match to match. Where a match must end before a
            character with which the next match can begin, the item is the state after that character in the *next*
            match. So the scanner splits off many words without leaving its inner loop. Items are not shifted, and the
            flags are in an array of their own: every step waits for the next state, and a shift would delay it.
        chained_flags: uint8, the flags of `chained_states`. `STARTS` says that a match ends before this character and
            that the next one begins with it.
        start_states: int64, one per expression.
        block_starts: int32, for each expression the 8,704 blocks of 128 code points: where the classes of a block start
            in `classes`. Equal blocks share their classes.
        classes: uint8, the classes of the code points of a block, one block after the other.
    """

    transitions: Int32s
    chained_states: npt.NDArray[np.uint32]
    chained_flags: UInt8s
    start_states: Int64s
    block_starts: Int32s
    classes: UInt8s


_Node = tuple[Any, ...]
"""A node of the syntax tree:

    ("set", set of code points)
    ("concatenation", nodes)
    ("alternatives", nodes)
    ("repeat", node, min, max or None, whether it is possessive)
    ("look-ahead", set of code points, whether it is negative)
"""


class _Parser:
    """Reads an expression into a syntax tree by recursive descent."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ignore_case = False

    def parse(self) -> _Node:
        """Returns the root of the syntax tree."""
        node = self._parse_alternatives()
        if self._at < len(self._text):
            raise self._make_error()
        return node

    def _make_error(self) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"{self._text[self._at : self._at + 12]!r} at character {self._at}")

    def _next_is(self, text: str) -> bool:
        """Returns whether the rest of the expression starts with `text`."""
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        """Skips `text` if the rest of the expression starts with it, and returns whether it does."""
        found = self._next_is(text)
        self._at += len(text) if found else 0
        return found

    def _parse_alternatives(self) -> _Node:
        nodes = [self._parse_concatenation()]
        while self._take("|"):
            nodes.append(self._parse_concatenation())
        return ("alternatives", nodes)

    def _parse_concatenation(self) -> _Node:
        nodes = []
        while self._at < len(self._text) and not self._next_is("|") and not self._next_is(")"):
            nodes.append(self._parse_repeat(self._parse_atom()))
        return ("concatenation", nodes)

    def _parse_repeat(self, node: _Node) -> _Node:
        """Returns the node with the repeat that follows it, if one does."""
        if self._take("?"):
            least, most = 0, 1
        elif self._take("*"):
            least, most = 0, None
        elif self._take("+"):
            least, most = 1, None
        elif self._next_is("{"):
            end = self._text.find("}", self._at)
            bounds = self._text[self._at + 1 : end].split(",")
            if end < 0 or len(bounds) > 2 or not bounds[0] or not all(map(_DECIMAL_DIGITS.issuperset, bounds)):
                raise self._make_error()
            least = int(bounds[0])
            most = least if len(bounds) == 1 else int(bounds[1]) if bounds[1] else None
            if max(least, most or 0) > _MAX_REPEATS:
                raise self._make_error()
            self._at = end + 1
        else:
            return node
        possessive = self._take("+")
        if any(map(self._next_is, "?*+{")) or node[0] == "look-ahead":
            raise self._make_error()
        return ("repeat", node, least, most, possessive)

    def _parse_atom(self) -> _Node:
        for opening, negative in (("(?!", True), ("(?=", False)):
            if self._take(opening):
                return self._parse_look_ahead(negative)
        if self._take("(?i:"):
            return self._parse_group(ignore_case=True)
        if self._take("(?:") or (self._next_is("(") and not self._next_is("(?") and self._take("(")):
            return self._parse_group(self._ignore_case)
        if self._take("["):
            return ("set", self._parse_set())
        if self._next_is("\\"):
            return ("set", self._parse_escape())
        character = self._text[self._at]
        if character in "^$.(){}*+?[]":
            raise self._make_error()
        self._at += 1
        return ("set", self._make_literal(character))

    def _parse_group(self, ignore_case: bool) -> _Node:
        before, self._ignore_case = self._ignore_case, ignore_case
        node = self._parse_alternatives()
        self._ignore_case = before
        if not self._take(")"):
            raise self._make_error()
        return node

    def _parse_look_ahead(self, negative: bool) -> _Node:
        _, alternatives = self._parse_alternatives()
        nodes = [node for _, concatenated in alternatives for node in concatenated]
        if not self._take(")") or len(alternatives) != 1 or len(nodes) != 1 or nodes[0][0] != "set":
            raise self._make_error()
        return ("look-ahead", nodes[0][1], negative)

    def _make_literal(self, character: str) -> CodePointSet:
        if not self._ignore_case or (character.isascii() and character not in _ASCII_LETTERS):
            return make_code_point_set(ord(character))
        if not character.isascii():
            if any(load_category(name)[ord(character)] for name in _CATEGORIES_WITH_CASE):
                raise self._make_error()
            return make_code_point_set(ord(character))
        # When case is ignored, two other characters equal an ASCII letter: LATIN SMALL LETTER LONG S and KELVIN SIGN.
        others = {"s": [0x17F], "S": [0x17F], "k": [0x212A], "K": [0x212A]}.get(character, [])
        return make_code_point_set(ord(character), ord(character) ^ 0x20, *others)

    def _parse_escape(self) -> CodePointSet:
        self._at += 1
        character = self._text[self._at : self._at + 1]
        self._at += 1
        if character in "pP":
            end = self._text.find("}", self._at)
            name = self._text[self._at + 1 : end]
            if not self._next_is("{") or end < 0 or self._ignore_case:
                raise self._make_error()
            try:
                members = load_script(name) if is_script(name) else load_category(name)
            except KeyError:
                raise self._make_error() from None
            self._at = end + 1
        elif character in "sS":
            members = make_code_point_set(*map(ord, WHITE_SPACE))
        elif character in "dD":
            members = load_category("Nd")
        elif character in "rntfv" and character:
            return make_code_point_set(ord({"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}[character]))
        elif character and character.isascii() and character not in _ASCII_LETTERS and character not in _DECIMAL_DIGITS:
            return make_code_point_set(ord(character))
        else:
            self._at -= 2
            raise self._make_error()
        return ~members if character in "PSD" else members

    def _parse_set(self) -> CodePointSet:
        r"""Reads a set such as `[^a-z\d]`, whose opening bracket has been read."""
        negative = self._take("^")
        common = np.ones(NUM_CODE_POINTS, bool)  # The intersection of the operands of `&&` so far.
        members = np.zeros(NUM_CODE_POINTS, bool)
        first = True
        while first or not self._next_is("]"):
            if not first and not self._ignore_case and self._take("&&"):
                common &= members
                members, first = np.zeros(NUM_CODE_POINTS, bool), True
                if self._take("["):
                    members, first = self._parse_set(), False
                    if not self._next_is("]") and not self._next_is("&&"):
                        raise self._make_error()
                continue
            if self._at >= len(self._text) or self._next_is("[") or self._next_is("&&") or self._next_is("--"):
                raise self._make_error()
            first = False
            start = self._text[self._at]
            if start == "\\":
                members |= self._parse_escape()
                if self._next_is("-") and self._text[self._at + 1 : self._at + 2] != "]":
                    raise self._make_error()
                continue
            self._at += 1
            if self._next_is("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                stop = self._text[self._at + 1]
                if stop in "\\[" or ord(stop) < ord(start) or self._ignore_case:
                    raise self._make_error()
                members[ord(start) : ord(stop) + 1] = True
                self._at += 2
            else:
                members |= self._make_literal(start)
        self._at += 1
        members &= common
        return ~members if negative else members


def parse_pattern(expression: str) -> _Node:
    """Returns the root of the syntax tree of an expression, a node of alternatives.

    Raises:
        UnsupportedPatternError: the expression is outside the subset.
    """
    return _Parser(expression).parse()


class _Nfa:
    """A non-deterministic automaton.

    A state is a number, an index in `states`. There are four kinds:

        ("char", set, next)            reads a character of the set, an index in `sets`, and goes to the state `next`
        ("split", preferred, other)    goes to either state without reading
        ("look-ahead", set, negative)  accepts if the next character is in the set, or is not if it is negative
        ("match",)                     accepts
    """

    def __init__(self, root: _Node) -> None:
        self.sets: list[CodePointSet] = []
        self.states: list[list[Any]] = [["match"]]
        self.start = self._add_node(root, 0)

    def _add_state(self, *state: Any) -> int:
        self.states.append(list(state))
        return len(self.states) - 1

    def _add_set(self, members: CodePointSet) -> int:
        self.sets.append(members)
        return len(self.sets) - 1

    def _add_node(self, node: _Node, after: int) -> int:
        """Adds the states of a node, which go on to the state `after`, and returns the state where the node starts."""
        if node[0] == "set":
            return self._add_state("char", self._add_set(node[1]), after)
        if node[0] == "look-ahead":
            if after != 0:
                raise UnsupportedPatternError("a look-ahead that does not end an alternative")
            return self._add_state("look-ahead", self._add_set(node[1]), node[2])
        if node[0] == "concatenation":
            for child in reversed(node[1]):
                after = self._add_node(child, after)
            return after
        if node[0] == "alternatives":
            *others, last = [self._add_node(child, after) for child in node[1]]
            for other in reversed(others):
                last = self._add_state("split", other, last)
            return last
        return self._add_repeat(node, after)

    def _add_repeat(self, node: _Node, after: int) -> int:
        _, body, least, most, possessive = node
        if self._is_nullable(body):
            raise UnsupportedPatternError("a repeat of something that can be empty")
        if possessive:
            self._check_possessive(body, after)
        if most is None:
            loop = self._add_state("split", None, after)
            self.states[loop][1] = start = self._add_node(body, loop)
            if least == 1:
                return start
            start = loop
        else:
            start = after
            for _ in range(most - least):
                start = self._add_state("split", self._add_node(body, start), after)
        for _ in range(least):
            start = self._add_node(body, start)
        return start

    def _is_nullable(self, node: _Node) -> bool:
        """Returns whether a node can match the empty string."""
        if node[0] == "concatenation":
            return all(map(self._is_nullable, node[1]))
        if node[0] == "alternatives":
            return any(map(self._is_nullable, node[1]))
        return node[0] == "look-ahead" or bool(node[0] == "repeat" and node[2] == 0)

    def _check_possessive(self, body: _Node, after: int) -> None:
        """Raises UnsupportedPatternError unless a possessive repeat matches the same as an ordinary one.

        A possessive repeat never gives characters back. An ordinary one never needs to in two cases: if the match may
        end after it, or if it repeats one set and what follows begins with other characters.
        """
        while body[0] in ("concatenation", "alternatives") and len(body[1]) == 1:
            body = body[1][0]
        following = [self.states[state] for state in self.find_closure([after])]
        if ["match"] in following:
            return
        if body[0] != "set" or any(state[0] != "char" or (self.sets[state[1]] & body[1]).any() for state in following):
            raise UnsupportedPatternError("a possessive repeat that changes what matches")

    def find_closure(self, states: Sequence[int]) -> tuple[int, ...]:
        """Returns the epsilon closure of some states: all that are reached from them without reading a character.

        `split` states are replaced by the states that they lead to. The order is the order of preference.
        """
        closure: list[int] = []
        seen: set[int] = set()
        waiting = list(reversed(states))
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, *rest = self.states[state]
            if None in rest:  # Only while the states of a repeated part are added, see `_add_repeat`.
                raise UnsupportedPatternError("a possessive repeat at the end of a repeated group")
            if kind == "split":
                waiting += [rest[1], rest[0]]
            else:
                closure.append(state)
        return tuple(closure)


def _divide_into_classes(sets: Sequence[CodePointSet]) -> tuple[UInt8s, npt.NDArray[np.bool_]]:
    """Returns the class of each code point, and a table `[class, set]` that says whether the set holds the class.

    Characters that are in the same sets are in the same class.
    """
    # Neighbouring code points are mostly in the same sets. Only the first one of each such run is looked at.
    is_first = np.zeros(NUM_CODE_POINTS, bool)
    is_first[0] = True
    for members in sets:
        is_first[1:] |= members[1:] != members[:-1]
    starts = np.flatnonzero(is_first)
    rows = np.array([members[starts] for members in sets]).T
    is_in_set, numbers = np.unique(rows, axis=0, return_inverse=True)
    if len(is_in_set) > _MAX_CLASSES:
        raise UnsupportedPatternError(f"{len(is_in_set)} classes of characters (at most {_MAX_CLASSES})")
    lengths = np.diff([*starts, NUM_CODE_POINTS])
    return np.repeat(numbers.reshape(-1).astype(np.uint8), lengths), is_in_set


@dataclass(frozen=True)
class _Dfa:
    """The automaton of one expression.

    Attributes:
        transitions: shape (states, 256), see `PatternTables`. State 0 is dead, and state 1, whose row starts at 256, is
        the
            start.
        classes: the class of each code point.
    """

    transitions: Int32s
    classes: UInt8s


def _build_dfa(expression: str) -> _Dfa:
    nfa = _Nfa(parse_pattern(expression))
    start = nfa.find_closure([nfa.start])
    if any(nfa.states[state][0] != "char" for state in start):
        raise UnsupportedPatternError("an alternative that can match the empty string")
    classes, is_in_set = _divide_into_classes(nfa.sets)
    num_classes = len(is_in_set)
    # Each DFA state is a list of NFA states. New ones are numbered in the order in which they are reached.
    numbers: dict[tuple[int, ...], int] = {(): 0, start: 1}
    states = [(), start]
    rows: list[list[int]] = []
    while len(rows) < len(states):
        state = states[len(rows)]
        items = []
        for class_number in range(num_classes + 1):
            after, may_end = _step(nfa, state, is_in_set[class_number] if class_number < num_classes else None)
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            items.append(_pack_transition(numbers[after] * NUM_COLUMNS, may_end))
        *by_class, at_end = items
        padding = [0] * (_MAX_CLASSES - num_classes)
        rows.append([*(items[classes[code]] for code in range(128)), *by_class, *padding, at_end])
        if len(states) > _MAX_STATES:
            raise UnsupportedPatternError(f"a DFA of more than {_MAX_STATES} states")
    return _Dfa(np.array(rows, np.int32), classes)


def _step(nfa: _Nfa, state: tuple[int, ...], is_in_set: npt.NDArray[np.bool_] | None) -> tuple[tuple[int, ...], bool]:
    """Returns the DFA state after a character, and whether a match may end before that character.

    Args:
        nfa: the automaton.
        state: a DFA state, which is a list of NFA states.
        is_in_set: for each set of the NFA, whether it holds the character's class; None at the end of the text.
    """
    following = []
    for nfa_state in state:
        kind, *rest = nfa.states[nfa_state]
        if kind == "char":
            if is_in_set is not None and is_in_set[rest[0]]:
                following.append(rest[1])
        elif kind == "match" or (is_in_set is not None and bool(is_in_set[rest[0]])) != rest[1]:
            # A match that may end here is preferred to all that the NFA states after this one could match.
            return nfa.find_closure(following), True
    return nfa.find_closure(following), False


def _pack_transition(state: int, may_end: bool) -> int:
    return state << 2 | (ENDS if may_end else 0)


def _chain_matches(transitions: Int32s, start: int) -> Int32s:
    """Returns transitions that go from one match directly to the next, for `PatternTables.chained_states`.

    `start` is the number of the start state's row. A match must end before a character if it may end there and cannot
    go on. If the next match can begin with that character, the transition becomes that of the start state, with the
    flags `ENDS` and `STARTS`. All others stay: the scanner then has to look what to do.
    """
    from_start = transitions[start]
    must_end = (transitions == ENDS) & (from_start >> 2 != 0)
    must_end[:, -1] = False
    return np.where(must_end, from_start | ENDS | STARTS, transitions).astype(np.int32)


def compile_patterns(expressions: Sequence[str]) -> PatternTables:
    """Compiles expressions that are applied one after the other.

    Raises:
        UnsupportedPatternError: one of them is outside the subset.

    >>> tables = compile_patterns(["a+|b"])
    >>> tables.transitions.size // NUM_COLUMNS  # The dead state, the start, after `a`, after `b`.
    4
    """
    transitions: list[Int32s] = []
    chained: list[Int32s] = []
    start_states: list[int] = []
    block_starts: list[Int32s] = []
    classes: list[UInt8s] = []
    num_rows = 0
    for dfa in map(_build_dfa, expressions):
        # The rows of all expressions follow each other in one table, so states are shifted by the rows before. Only the
        # dead state stays 0 for all.
        is_alive = dfa.transitions >> 2 != 0
        shifted = np.where(is_alive, dfa.transitions + (num_rows * NUM_COLUMNS << 2), dfa.transitions)
        transitions.append(shifted.astype(np.int32))
        chained.append(_chain_matches(transitions[-1], 1))
        start_states.append((num_rows + 1) * NUM_COLUMNS)
        num_rows += len(shifted)
        # Most blocks of code points are equal, and kept once.
        kept: dict[bytes, int] = {}
        size = sum(map(np.size, classes))
        starts = [
            kept.setdefault(block.tobytes(), size + len(kept) * _BLOCK_SIZE)
            for block in dfa.classes.reshape(-1, _BLOCK_SIZE)
        ]
        block_starts.append(np.array(starts, np.int32))
        classes.append(np.frombuffer(b"".join(kept), np.uint8))
    all_chained = np.concatenate(chained).reshape(-1)
    return PatternTables(
        np.concatenate(transitions).reshape(-1),
        (all_chained >> 2).astype(np.uint32),
        (all_chained & (ENDS | STARTS)).astype(np.uint8),
        np.array(start_states, np.int64),
        np.concatenate(block_starts),
        np.concatenate(classes),
    )
