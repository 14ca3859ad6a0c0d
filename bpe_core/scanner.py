"""A word pattern compiled to a table, and the kernel that runs it over UTF-8 bytes.

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

from bpe_core.characters import NUM_CODE_POINTS, WHITE_SPACE, Members, category, code_points
from bpe_core.kernels import Int8s, Int32s, Int64s, grown, kernel

_BLOCK = 128
_COLUMNS = 256
_MOST_COPIES = 64
_MOST_STATES = 4096
_MOST_CLASSES = 127


class Unsupported(ValueError):
    """A pattern is outside the subset that can be compiled; the message says where."""


class Tables(NamedTuple):
    """Compiled patterns, one after the other.

    A row of `moves` is a state of 256 columns: the ASCII characters, then the classes, and last the end of the text. An
    entry is twice the place where the next state's row starts, plus 1 where the match may end before the character. The
    row at 0 is the state that no match leaves.
    """

    moves: Int32s
    first: Int64s  # where each pattern's first state starts
    block: Int32s  # by pattern and block of 128 code points, where the block's classes start in `classes`
    classes: Int8s


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

    def _unsupported(self) -> Unsupported:
        return Unsupported(f"{self._text[self._at : self._at + 12]!r} at character {self._at}")

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
            members = code_points(*WHITE_SPACE)
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
                raise Unsupported("a look-ahead that does not end an alternative")
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
            raise Unsupported("a repeat of something that may be empty")
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
            raise Unsupported("a possessive repeat that changes what matches")

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
        raise Unsupported(f"a pattern that tells {len(held)} classes of characters apart")
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
        raise Unsupported("a pattern that may match nothing")
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
            entries.append(2 * states[after] * _COLUMNS + accepts)
        *by_class, at_end = entries
        unused = [0] * (_MOST_CLASSES - num_classes)
        rows.append([*(entries[classes[code]] for code in range(128)), *by_class, *unused, at_end])
        at += 1
        if len(order) > _MOST_STATES:
            raise Unsupported(f"a pattern of more than {_MOST_STATES} states")
    return _Compiled(np.array(rows, np.int32), classes)


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
        Unsupported: one of them is outside the subset.
    """
    moves: list[Int32s] = []
    firsts: list[int] = []
    blocks: list[Int32s] = []
    classes: list[Int8s] = []
    for compiled in map(_compile, expressions):
        # The rows of one pattern follow those of the one before; all share the dead state at 0.
        before = sum(rows.size for rows in moves)
        states = compiled.moves if not moves else compiled.moves[1:]
        shift = 2 * (before - (_COLUMNS if moves else 0))
        moves.append(np.where(states >> 1 != 0, states + shift, states).astype(np.int32))
        firsts.append(before if before else _COLUMNS)
        different, number = np.unique(compiled.classes.reshape(-1, _BLOCK), axis=0, return_inverse=True)
        blocks.append((number.reshape(-1) * _BLOCK + sum(map(np.size, classes))).astype(np.int32))
        classes.append(different.reshape(-1))
    return Tables(
        np.concatenate([rows.reshape(-1) for rows in moves]),
        np.array(firsts, np.int64),
        np.concatenate(blocks),
        np.concatenate(classes),
    )


@kernel
def code_point(data: Int8s, at: Any) -> Any:
    """Returns the character at `at`, which is not ASCII, of valid UTF-8."""
    place = np.uint64(at)
    lead = np.int64(data[place])
    second = np.int64(data[place + np.uint64(1)]) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second
    third = np.int64(data[place + np.uint64(2)]) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third
    return ((lead & 0x07) << 18) | (second << 12) | (third << 6) | (np.int64(data[place + np.uint64(3)]) & 0x3F)


@kernel
def character_width(lead: Any) -> Any:
    """Returns the bytes of the character that starts with this byte."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


@kernel
def _match_end(data: Int8s, start: Any, stop: Any, moves: Int32s, first: Any, block: Int32s, classes: Int8s) -> Any:
    """Returns where the match ends that starts at `start`; `start` itself where there is none."""
    # Places in `moves` are unsigned: a signed index would be checked for being negative at every step.
    row = np.uint64(first)
    end = start
    at = start
    while at < stop:
        byte = data[np.uint64(at)]
        if byte < 0x80:
            entry = moves[row + np.uint64(byte)]
            step = 1
        else:
            code = code_point(data, at)
            kind = classes[np.uint64(block[np.uint64(code >> 7)]) + np.uint64(code & 127)]
            entry = moves[row + np.uint64(128) + np.uint64(kind)]
            step = character_width(byte)
        if entry & 1:
            end = at
        row = np.uint64(np.uint32(entry) >> np.uint32(1))
        if row == 0:
            return end
        at += step
    if moves[row + np.uint64(255)] & 1:
        end = stop
    return end


@kernel
def _cut_from(
    text: Any,
    at: Any,
    data: Int8s,
    offsets: Int64s,
    pattern: Any,
    tables: Tables,
    keep_gaps: Any,
    ends: Int64s,
    first_end: Int64s,
) -> tuple[Any, Any]:
    """Cuts texts by one pattern, from the place `at` in `text` on, until all are cut or `ends` is full.

    Returns the text and the place to go on from, where a word starts.
    """
    num_blocks = tables.block.size // tables.first.size
    block = tables.block[pattern * num_blocks : (pattern + 1) * num_blocks]
    first, moves, classes = tables.first[pattern], tables.moves, tables.classes
    num_ends = first_end[text + 1] if at > offsets[text] else first_end[text]
    most = ends.size - 3
    while text < offsets.size - 1:
        stop = offsets[text + 1]
        gap = at
        while at < stop:
            end = _match_end(data, at, stop, moves, first, block, classes)
            if end == at:
                at += character_width(data[at])
                continue
            if not keep_gaps or at > gap:
                ends[num_ends] = at
                num_ends += 1
            ends[num_ends] = end
            num_ends += 1
            at = gap = end
            if num_ends > most:
                break
        if keep_gaps and at > gap:
            ends[num_ends] = at
            num_ends += 1
        first_end[text + 1] = num_ends
        if at < stop:
            break
        text += 1
        at = stop
        if num_ends > most:
            break
    return text, at


def cut_texts(data: Int8s, offsets: Int64s, tables: Tables, keep_gaps: bool) -> tuple[Int64s, Int64s]:
    """Cuts texts, `data[offsets[t] : offsets[t + 1]]` of valid UTF-8, into words.

    Returns where the words end in `data`, and the number of the first end of each text (int64, one more than texts).
    Text between matches is a word of its own with `keep_gaps`; else only matches are words, and the ends are the start
    and the end of each in turn.
    """
    ends, first_end = _cut_once(data, offsets, 0, tables, keep_gaps)
    for pattern in range(1, tables.first.size):
        # The words so far are the texts of the next pattern.
        starts = np.concatenate([offsets[:1], ends])
        ends, first_of_word = _cut_once(data, starts, pattern, tables, keep_gaps)
        first_end = first_of_word[first_end]
    return ends, first_end


def _cut_once(data: Int8s, offsets: Int64s, pattern: int, tables: Tables, keep_gaps: bool) -> tuple[Int64s, Int64s]:
    first_end = np.zeros(offsets.size, np.int64)
    # A word of English has some five bytes with its blank; where there are more words, the array grows.
    ends = np.empty(data.size // 3 + 64, np.int64)
    text, at = 0, int(offsets[0])
    while text < offsets.size - 1:
        text, at = _cut_from(text, at, data, offsets, pattern, tables, keep_gaps, ends, first_end)
        if text < offsets.size - 1:
            ends = grown(ends, 0)
    return ends[: first_end[-1]], first_end
