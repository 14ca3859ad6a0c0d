"""A word pattern compiled to a table; `scanner` runs it over UTF-8 bytes.

The regular expression is the definition, the table is the speed: for patterns in the subset below both cut every text
alike. All characters are divided into the few classes that the pattern can tell apart. Then a deterministic automaton
is built whose states are the lists of places where a backtracking matcher could stand, the preferred one first, so that
it finds the match that such a matcher finds (Perl's leftmost-first choice; RE2 does it so). Whether a state accepts
depends on the class of the next character too, which is all that a look-ahead at one character needs.

The subset: literals, sets, `\\p{..}`, `\\s`, `\\d`, groups, `(?i:..)` around ASCII letters, alternatives,
`? * + {m,n}`, possessive forms of them around one set where that changes nothing, and `(?!..)` or `(?=..)` around one
set at the end of an alternative. Several patterns run one after the other: each cuts the words of the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int32s, Int64s, UInt8s
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, WHITE_SPACE, Members, category, code_points

_BLOCK = 128
COLUMNS = 256
_MOST_COPIES = 64
_MOST_STATES = 4096
_MOST_CLASSES = 127


class UnsupportedPatternError(ValueError):
    """A pattern is outside the subset that can be compiled; the message says where."""


ENDS, STARTS = 1, 2
"""The bits of an entry."""


class Tables(NamedTuple):
    """Compiled patterns, one after the other.

    A row of `moves` is a state of 256 columns: the ASCII characters, then the classes, and last the end of the text. An
    entry is the place where the next state's row starts, above two bits: `ENDS` where the match may end before the
    character. The row at 0 is the state that no match leaves.

    `joined` is the same for matches that follow each other: where the match must end before a character and the next
    one can start with it, the entry goes on to that match's state and also says `STARTS`. The places of its rows and
    the bits stand apart, for each step waits for the row: it is there sooner when nothing needs to be taken off it.
    """

    moves: Int32s
    joined: npt.NDArray[np.uint32]
    joined_bits: UInt8s
    first: Int64s  # where each pattern's first state starts
    block: Int32s  # by pattern and block of 128 code points, where the block's classes start in `classes`
    classes: UInt8s


# What a pattern is made of, as nested tuples.
_Node = tuple[Any, ...]


class _Parser:
    """Reads an expression into nodes: `("set", members)`, `("cat", nodes)`, `("alt", nodes)`,
    `("repeat", node, least, most or None, possessive)`, `("look", members, negative)`."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ignore_case = False

    def parse(self) -> _Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise self._unsupported()
        return node

    def _unsupported(self) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"{self._text[self._at : self._at + 12]!r} at character {self._at}")

    def _next_is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._next_is(text)
        self._at += len(text) if found else 0
        return found

    def _alternatives(self) -> _Node:
        nodes = [self._sequence()]
        while self._take("|"):
            nodes.append(self._sequence())
        return ("alt", nodes)

    def _sequence(self) -> _Node:
        nodes = []
        while self._at < len(self._text) and not self._next_is("|") and not self._next_is(")"):
            nodes.append(self._repeat(self._atom()))
        return ("cat", nodes)

    def _repeat(self, node: _Node) -> _Node:
        if self._take("?"):
            least, most = 0, 1
        elif self._take("*"):
            least, most = 0, None
        elif self._take("+"):
            least, most = 1, None
        elif self._next_is("{"):
            end = self._text.find("}", self._at)
            bounds = self._text[self._at + 1 : end].split(",")
            if (
                end < 0
                or not all(b.isdecimal() for b in bounds[:1])
                or len(bounds) > 2
                or (bounds[1:] and not (bounds[1] == "" or bounds[1].isdecimal()))
            ):
                raise self._unsupported()
            least = int(bounds[0])
            most = least if len(bounds) == 1 else int(bounds[1]) if bounds[1] else None
            if max(least, most or 0) > _MOST_COPIES:
                raise self._unsupported()
            self._at = end + 1
        else:
            return node
        possessive = self._take("+")
        if self._next_is("?") or self._next_is("*") or self._next_is("+") or self._next_is("{") or node[0] == "look":
            raise self._unsupported()
        return ("repeat", node, least, most, possessive)

    def _atom(self) -> _Node:
        for opening, negative in (("(?!", True), ("(?=", False)):
            if self._take(opening):
                return self._look(negative)
        if self._take("(?i:"):
            return self._group(ignore_case=True)
        if self._take("(?:") or (self._next_is("(") and not self._next_is("(?") and self._take("(")):
            return self._group(self._ignore_case)
        if self._take("["):
            return ("set", self._set())
        if self._next_is("\\"):
            return ("set", self._escape())
        character = self._text[self._at]
        if character in "^$.(){}*+?[]":
            raise self._unsupported()
        self._at += 1
        return ("set", self._literal(character))

    def _group(self, ignore_case: bool) -> _Node:
        before, self._ignore_case = self._ignore_case, ignore_case
        node = self._alternatives()
        self._ignore_case = before
        if not self._take(")"):
            raise self._unsupported()
        return node

    def _look(self, negative: bool) -> _Node:
        node = self._alternatives()
        if not self._take(")") or len(node[1]) != 1 or len(node[1][0][1]) != 1 or node[1][0][1][0][0] != "set":
            raise self._unsupported()
        return ("look", node[1][0][1][0][1], negative)

    def _literal(self, character: str) -> Members:
        if not self._ignore_case or not character.isalpha():
            return code_points(ord(character))
        if not character.isascii():
            raise self._unsupported()
        # Two characters beyond ASCII fold to an ASCII letter: LATIN SMALL LETTER LONG S and KELVIN SIGN.
        beyond = {"s": [0x17F], "k": [0x212A]}.get(character.lower(), [])
        return code_points(ord(character.lower()), ord(character.upper()), *beyond)

    def _escape(self) -> Members:
        self._at += 1
        character = self._text[self._at : self._at + 1]
        self._at += 1
        if character in "pP":
            end = self._text.find("}", self._at)
            name = self._text[self._at + 1 : end]
            if not self._next_is("{") or end < 0 or self._ignore_case:
                raise self._unsupported()
            try:
                members = category(name)
            except KeyError:
                raise self._unsupported() from None
            self._at = end + 1
        elif character in "sS":
            members = code_points(*map(ord, WHITE_SPACE))
        elif character in "dD":
            members = category("Nd")
        elif character in "rntfv" and character:
            return code_points(ord({"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}[character]))
        elif character and not character.isalnum() and character.isascii():
            return code_points(ord(character))
        else:
            self._at -= 2
            raise self._unsupported()
        return ~members if character.isupper() else members

    def _set(self) -> Members:
        negative = self._take("^")
        members = np.zeros(NUM_CODE_POINTS, bool)
        first = True
        while first or not self._next_is("]"):
            if self._at >= len(self._text) or self._next_is("[") or self._next_is("&&") or self._next_is("--"):
                raise self._unsupported()
            first = False
            start = self._text[self._at]
            if start == "\\":
                escaped = self._escape()
                members |= escaped
                if self._next_is("-") and self._text[self._at + 1 : self._at + 2] != "]":
                    raise self._unsupported()
                continue
            self._at += 1
            if self._next_is("-") and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                stop = self._text[self._at + 1]
                if stop in "\\[" or ord(stop) < ord(start) or self._ignore_case:
                    raise self._unsupported()
                members[ord(start) : ord(stop) + 1] = True
                self._at += 2
            else:
                members |= self._literal(start)
        self._at += 1
        return ~members if negative else members


class _Automaton:
    """The places of a backtracking matcher: `("char", set, next)`, `("split", preferred, other)`,
    `("look", set, negative)`, `("match",)`."""

    def __init__(self, node: _Node) -> None:
        self.sets: list[Members] = []
        self.places: list[list[Any]] = [["match"]]
        self.start = self._emit(node, 0)

    def _add(self, *place: Any) -> int:
        self.places.append(list(place))
        return len(self.places) - 1

    def _set(self, members: Members) -> int:
        self.sets.append(members)
        return len(self.sets) - 1

    def _emit(self, node: _Node, after: int) -> int:
        """Returns the place where the node starts; it goes on to the place `after`."""
        if node[0] == "set":
            return self._add("char", self._set(node[1]), after)
        if node[0] == "look":
            if after != 0:
                raise UnsupportedPatternError("a look-ahead that does not end an alternative")
            return self._add("look", self._set(node[1]), node[2])
        if node[0] == "cat":
            for part in reversed(node[1]):
                after = self._emit(part, after)
            return after
        if node[0] == "alt":
            *others, last = [self._emit(part, after) for part in node[1]]
            for other in reversed(others):
                last = self._add("split", other, last)
            return last
        return self._emit_repeat(node, after)

    def _emit_repeat(self, node: _Node, after: int) -> int:
        _, body, least, most, possessive = node
        if self._is_nullable(body):
            raise UnsupportedPatternError("a repeat of something that may be empty")
        if possessive:
            self._check_possessive(body, after)
        if most is None:
            loop = self._add("split", None, after)
            self.places[loop][1] = start = self._emit(body, loop)
            if least == 1:
                return start
            start = loop
        else:
            start = after
            for _ in range(most - least):
                start = self._add("split", self._emit(body, start), after)
        for _ in range(least):
            start = self._emit(body, start)
        return start

    def _is_nullable(self, node: _Node) -> bool:
        if node[0] == "cat":
            return all(map(self._is_nullable, node[1]))
        if node[0] == "alt":
            return any(map(self._is_nullable, node[1]))
        return node[0] == "look" or bool(node[0] == "repeat" and node[2] == 0)

    def _check_possessive(self, body: _Node, after: int) -> None:
        """What gives nothing back matches as what does, where going on needs none of it: nothing need follow, or what
        follows starts with other characters."""
        while body[0] in ("cat", "alt") and len(body[1]) == 1:
            body = body[1][0]
        follows = [self.places[place] for place in self.closure([after])]
        if ["match"] in follows:
            return
        if body[0] != "set" or any(place[0] != "char" or (self.sets[place[1]] & body[1]).any() for place in follows):
            raise UnsupportedPatternError("a possessive repeat that changes what matches")

    def closure(self, places: Sequence[int]) -> tuple[int, ...]:
        """Returns where a matcher at these places may stand without reading on, in order of preference."""
        found: list[int] = []
        seen: set[int] = set()
        waiting = list(reversed(places))
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            kind, *rest = self.places[place]
            if kind == "split":
                waiting += [rest[1], rest[0]]
            else:
                found.append(place)
        return tuple(found)


def _classes(sets: Sequence[Members]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Returns the class of each code point, and for each class and set whether the set holds it."""
    # Characters in the same sets are one class. Neighbours mostly are, so only the first of each run is looked at.
    edges = np.zeros(NUM_CODE_POINTS, bool)
    edges[0] = True
    for members in sets:
        edges[1:] |= members[1:] != members[:-1]
    starts = np.flatnonzero(edges)
    rows = np.array([members[starts] for members in sets]).T
    held, number = np.unique(rows, axis=0, return_inverse=True)
    if len(held) > _MOST_CLASSES:
        raise UnsupportedPatternError(f"a pattern that tells {len(held)} classes of characters apart")
    lengths = np.diff([*starts, NUM_CODE_POINTS])
    return np.repeat(number.reshape(-1).astype(np.uint8), lengths), held


@dataclass(frozen=True)
class _Compiled:
    moves: Int32s  # shape (states, 256), with rows numbered from 0 as if this were the only pattern
    classes: npt.NDArray[np.uint8]  # of each code point


def _compile(expression: str) -> _Compiled:
    automaton = _Automaton(_Parser(expression).parse())
    start = automaton.closure([automaton.start])
    if any(automaton.places[place][0] != "char" for place in start):
        raise UnsupportedPatternError("a pattern that may match nothing")
    classes, held = _classes(automaton.sets)
    num_classes = len(held)
    states: dict[tuple[int, ...], int] = {(): 0, start: 1}
    order = [(), start]
    rows: list[list[int]] = []
    at = 0
    while at < len(order):
        row = [_move(automaton, order[at], held[c] if c < num_classes else None) for c in range(num_classes + 1)]
        entries = []
        for after, accepts in row:
            if after not in states:
                states[after] = len(order)
                order.append(after)
            entries.append(_entry(states[after] * COLUMNS, accepts))
        *by_class, at_end = entries
        unused = [0] * (_MOST_CLASSES - num_classes)
        rows.append([*(entries[classes[code]] for code in range(128)), *by_class, *unused, at_end])
        at += 1
        if len(order) > _MOST_STATES:
            raise UnsupportedPatternError(f"a pattern of more than {_MOST_STATES} states")
    return _Compiled(np.array(rows, np.int32), classes)


def _entry(row: int, accepts: bool) -> int:
    return row << 2 | (ENDS if accepts else 0)


def _joined(moves: Int32s, first: int) -> Int32s:
    """Returns the moves with the start of the next match in place of an end that must be; `first` is the row's number.

    Where no match starts with the character, or the match ended earlier, the scanner has to look.
    """
    start = moves[first]
    must_end = (moves == ENDS) & (start >> 2 != 0)
    must_end[:, -1] = False
    return np.where(must_end, start | ENDS | STARTS, moves).astype(np.int32)


def _move(
    automaton: _Automaton, state: tuple[int, ...], held: npt.NDArray[np.bool_] | None
) -> tuple[tuple[int, ...], bool]:
    """Returns the state after a character of a class (None: there is none), and whether a match may end before it.

    `held` says for each set whether it holds the class. Places after an accepting one are less preferred: they go.
    """
    going_on = []
    for place in state:
        kind, *rest = automaton.places[place]
        if kind == "char":
            if held is not None and held[rest[0]]:
                going_on.append(rest[1])
        elif kind == "match" or (held is not None and bool(held[rest[0]])) != rest[1]:
            return automaton.closure(going_on), True
    return automaton.closure(going_on), False


def compile_patterns(expressions: Sequence[str]) -> Tables:
    """Returns the tables of patterns that run one after the other.

    Raises:
        UnsupportedPatternError: one of them is outside the subset.
    """
    moves: list[Int32s] = []
    joined: list[Int32s] = []
    firsts: list[int] = []
    blocks: list[Int32s] = []
    classes: list[UInt8s] = []
    num_rows = 0
    for compiled in map(_compile, expressions):
        # The rows of one pattern follow those of the one before, each with its own dead state, which is left by 0 too.
        states = np.where(compiled.moves >> 2 != 0, compiled.moves + (num_rows * COLUMNS << 2), compiled.moves)
        moves.append(states.astype(np.int32))
        joined.append(_joined(moves[-1], 1))
        firsts.append((num_rows + 1) * COLUMNS)
        num_rows += len(states)
        # Most blocks are alike, and kept once.
        places: dict[bytes, int] = {}
        size = sum(map(np.size, classes))
        found = [
            places.setdefault(b.tobytes(), size + len(places) * _BLOCK) for b in compiled.classes.reshape(-1, _BLOCK)
        ]
        blocks.append(np.array(found, np.int32))
        classes.append(np.frombuffer(b"".join(places), np.uint8))
    entries = np.concatenate(joined).reshape(-1)
    return Tables(
        np.concatenate(moves).reshape(-1),
        (entries >> 2).astype(np.uint32),
        (entries & (ENDS | STARTS)).astype(np.uint8),
        np.array(firsts, np.int64),
        np.concatenate(blocks),
        np.concatenate(classes),
    )
