r"""Regular expressions that run on the `regex` package but classify characters by the pinned Unicode tables.

The package's own idea of `\p{L}` or `\w` changes with its version, and with it the words of a text. So a pattern is
rewritten until nothing in it depends on the package's tables:

* Every character, class and set of the pattern becomes an explicit set of code points.
* Characters that no set tells apart form a class, and each class gets a *stand-in*, a private-use character.
* The rewritten pattern consists of stand-ins, and runs on the text with each character replaced by its stand-in.

Line ends stand for themselves, because `^`, `$` and `.` look for them.
"""

import re
import string
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from bpe_core.pretokenize.unicode_categories import (
    NUM_CODE_POINTS,
    UNICODE_VERSION,
    WHITE_SPACE,
    CodePointSet,
    load_category,
    load_word_characters,
    make_code_point_set,
)
from bpe_core.pretokenize.unicode_scripts import is_script, load_script

_FIRST_STAND_IN = 0xE000
_MAX_STAND_INS = 6000
"""The private-use area has 6400 characters."""

_LINE_END = ord("\n")
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEXADECIMAL_DIGITS = {"x": 2, "u": 4, "U": 8}

_CATEGORIES = {
    **{name: name for name in ("c", "l", "m", "n", "p", "s", "z")},
    "other": "c",
    "letter": "l",
    "mark": "m",
    "number": "n",
    "punctuation": "p",
    "symbol": "s",
    "separator": "z",
    "uppercaseletter": "lu",
    "lowercaseletter": "ll",
    "titlecaseletter": "lt",
    "modifierletter": "lm",
    "otherletter": "lo",
    "nonspacingmark": "mn",
    "spacingmark": "mc",
    "enclosingmark": "me",
    "decimalnumber": "nd",
    "letternumber": "nl",
    "othernumber": "no",
    "connectorpunctuation": "pc",
    "dashpunctuation": "pd",
    "openpunctuation": "ps",
    "closepunctuation": "pe",
    "initialpunctuation": "pi",
    "finalpunctuation": "pf",
    "otherpunctuation": "po",
    "mathsymbol": "sm",
    "currencysymbol": "sc",
    "modifiersymbol": "sk",
    "othersymbol": "so",
    "spaceseparator": "zs",
    "lineseparator": "zl",
    "paragraphseparator": "zp",
    "control": "cc",
    "format": "cf",
    "privateuse": "co",
    "surrogate": "cs",
    "unassigned": "cn",
    "combiningmark": "m",
    "digit": "nd",
    "punct": "p",
    "cntrl": "cc",
}
"""The general category behind each long name of it, both without `_`, `-`, blanks and capitals."""

_GROUP = re.compile(r"\((?:\?(?:[:>|=!]|<[=!]|P?<[A-Za-z_]\w*>|\((?:\d+|[A-Za-z_]\w*)\)))?", re.ASCII)
_FLAGS = re.compile(r"\(\?(?P<on>[a-zA-Z0-9]*)(?:-(?P<off>[a-z]+))?(?P<end>[:)])", re.ASCII)
_QUANTIFIER = re.compile(r"\{(?:\d+(?:,\d*)?|,\d+)\}", re.ASCII)
_FUZZY = re.compile(r"\{[^{}]*[eisd][^{}]*\}", re.ASCII)
_PROPERTY = re.compile(r"\\[pP](?:\{(?P<negative>\^?)(?P<name>[^{}]+)\}|(?P<short>[A-Za-z]))", re.ASCII)
_POSIX = re.compile(r"\[:(?P<negative>\^?)(?P<name>[A-Za-z_]+):\]", re.ASCII)
_OCTAL = re.compile(r"\\(?:0[0-7]{0,2}|[0-3][0-7]{2})", re.ASCII)


class NotPinnedError(ValueError):
    """A pattern has a part whose meaning depends on the version of the `regex` package; the message names it."""


class _PatternReader:
    """Reads a pattern into pieces.

    Attributes:
        pieces: text that is passed on to the `regex` package, a code point, or a set of code points.
        has_backreferences: whether the pattern compares parts of the text with each other.
    """

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ignore_case = False
        self._nests_sets = False  # As in the package's "version 1" of its syntax.
        self.pieces: list[Any] = []
        self.has_backreferences = False
        self._parse()

    def _refuse(self, part: str) -> NotPinnedError:
        return NotPinnedError(f"{part!r} at character {self._at}")

    def _match(self, pattern: "re.Pattern[str]") -> "re.Match[str] | None":
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _parse(self) -> None:
        flags_outside: list[bool] = []
        has_ignored_case = False
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "(":
                flags_outside.append(self._ignore_case)
                if self._open_group():
                    flags_outside.pop()
            elif character == ")":
                self._ignore_case = flags_outside.pop() if flags_outside else False
                self._pass(")")
            elif character == "[":
                self.pieces.append(self._set())
            elif character == "\\":
                self._escape_outside_sets()
            elif character in ".^$|*+?":
                self._pass(character)
            elif character == "{":
                quantifier = self._match(_QUANTIFIER)
                if quantifier:
                    self.pieces.append(quantifier.group())
                elif _FUZZY.match(self._text, self._at) or self._text.startswith("{,}", self._at):
                    raise self._refuse(self._text[self._at : self._at + 12])
                else:
                    self._literal(ord("{"))
            else:
                self._literal(ord(character))
            has_ignored_case |= self._ignore_case
        if has_ignored_case and (self.has_backreferences or self._nests_sets):
            raise NotPinnedError("(?i) together with a backreference or (?V1)")

    def _pass(self, text: str) -> None:
        self.pieces.append(text)
        self._at += len(text)

    def _literal(self, code: int) -> None:
        self._at += 1
        self._add_literal(code)

    def _add_literal(self, code: int) -> None:
        variants = _case_variants(code) if self._ignore_case else (code,)
        self.pieces.append(code if len(variants) == 1 else make_code_point_set(*variants))

    def _open_group(self) -> bool:
        """Passes what opens a group; returns whether it is closed already, as flags and comments are."""
        text = self._text
        if text.startswith("(?#", self._at):
            self._at = text.index(")", self._at) + 1
            return True
        if text.startswith("(?P=", self._at):
            end = text.index(")", self._at) + 1
            self.has_backreferences = True
            self._pass(text[self._at : end])
            return True
        group = self._match(_GROUP)
        if group and (group.group() != "(" or text[self._at : self._at + 1] not in ("?", "*")):
            self.pieces.append(group.group())
            return False
        if group:
            self._at = group.start()
        flags = self._match(_FLAGS)
        if not flags:
            raise self._refuse(text[self._at : self._at + 12])
        return self._set_flags(flags["on"], flags["off"] or "", flags["end"], flags.start())

    def _set_flags(self, on: str, off: str, end: str, start: int) -> bool:
        rest = on.replace("V0", "").replace("V1", "").replace("u", "")
        if any(flag not in "ims" for flag in rest + off) or (end == ")" and (start > 0 or off)):
            self._at = start
            raise self._refuse(self._text[start : start + 12])
        if "V1" in on:
            self._nests_sets = True
        if "i" in on:
            self._ignore_case = True
        if "i" in off:
            self._ignore_case = False
        on, off = (on if end == ")" else rest).replace("i", ""), off.replace("i", "")
        self.pieces.append(f"(?{on}{'-' * bool(off)}{off}{end}" if on or off or end == ":" else "")
        return end == ")"

    def _escape_outside_sets(self) -> None:
        escaped = self._text[self._at + 1 : self._at + 2]
        if escaped in "AZzKG":
            self._pass("\\" + escaped)
        elif escaped in "bBmM":
            self._at += 2
            word = load_word_characters()
            before, not_before = ["(?<=", word, ")"], ["(?<!", word, ")"]
            after, not_after = ["(?=", word, ")"], ["(?!", word, ")"]
            starts, ends = [*not_before, *after], [*before, *not_after]
            self.pieces += {
                "m": starts,
                "M": ends,
                "b": ["(?:", *starts, "|", *ends, ")"],
                "B": ["(?:", *before, *after, "|", *not_before, *not_after, ")"],
            }[escaped]
        elif escaped == "R":
            self._at += 2
            self.pieces += ["(?>", ord("\r"), "\n|", make_code_point_set(*range(10, 14), 0x85, 0x2028, 0x2029), ")"]
        elif escaped == "g" or (escaped in "123456789" and not _OCTAL.match(self._text, self._at)):
            reference = re.compile(r"\\(?:g<\w+>|[1-9]\d?)", re.ASCII).match(self._text, self._at)
            if not reference:
                raise self._refuse(self._text[self._at : self._at + 12])
            self.has_backreferences = True
            self._at = reference.end()
            # In a group, a repeat that follows applies to it, and a digit that follows is no part of it.
            self.pieces.append(f"(?:{reference.group()})")
        else:
            member = self._escape()
            if isinstance(member, int):
                self._add_literal(member)
            else:
                self.pieces.append(member)

    def _escape(self) -> "int | CodePointSet":
        r"""Reads what follows a `\`, inside or outside of a set: a code point or a class."""
        found = self._match(_PROPERTY)
        if found:
            is_negative = (found.group()[1] == "P") != bool(found["negative"])
            members = self._property(found["short"] or found["name"])
            return ~members if is_negative else members
        octal = self._match(_OCTAL)
        if octal:
            return int(octal.group()[1:], 8)
        escaped = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if escaped in "sS":
            members = make_code_point_set(*map(ord, WHITE_SPACE))
        elif escaped in "dD":
            members = load_category("Nd")
        elif escaped in "wW":
            members = load_word_characters()
        elif escaped == "h":
            return make_code_point_set(9) | load_category("Zs")
        elif escaped in _HEXADECIMAL_DIGITS:
            end = self._at + _HEXADECIMAL_DIGITS[escaped]
            self._at, code = end, int(self._text[self._at : end], 16)
            return code
        elif escaped in _CONTROL:
            return _CONTROL[escaped]
        elif escaped in string.ascii_letters + "123456789" or not escaped:
            self._at -= 2
            raise self._refuse("\\" + escaped)
        else:
            return ord(escaped)
        return ~members if escaped in "SDW" else members

    def _property(self, name: str) -> CodePointSet:
        simple = re.sub(r"[ _&-]", "", name).translate(_LOWER_ASCII)
        value = simple.split("=")[-1].split(":")[-1]
        prefix = simple[: len(simple) - len(value)]
        short = _CATEGORIES.get(value, value)
        if prefix in ("", "gc=", "gc:", "generalcategory=", "generalcategory:"):
            if self._ignore_case and short in ("lu", "ll", "lt", "lc"):
                return load_category("Lu") | load_category("Ll") | load_category("Lt")
            if value == "any":
                return np.ones(NUM_CODE_POINTS, bool)
            if value == "assigned":
                return ~load_category("Cn")
            if short == "lc":
                return load_category("Lu") | load_category("Ll") | load_category("Lt")
            try:
                return load_category(short[:1].translate(_UPPER_ASCII) + short[1:])
            except KeyError:
                pass
        if prefix == "" and value in ("word", "w"):
            return load_word_characters()
        if is_script(value) and prefix in ("", "script=", "script:", "sc=", "sc:"):
            return load_script(value)
        return _evaluate(f"{'(?i)' * self._ignore_case}\\p{{{name}}}")

    def _set(self) -> CodePointSet:
        """Reads a set, from its `[` to its `]`."""
        start = self._at
        self._at += 1
        is_negative = self._text.startswith("^", self._at)
        self._at += is_negative
        members = self._operands(start)
        self._at += 1
        return ~members if is_negative else members

    def _operands(self, start: int) -> CodePointSet:
        """Reads the inside of a set. In the nesting syntax, `--` binds closest, then `&&`, `~~` and `||`.

        Elsewhere too, `&&` intersects, and what follows it may be a set. The `regex` package reads it like this only in
        its nesting syntax, but the other engines always do.
        """
        parts: list[Any] = [np.zeros(NUM_CODE_POINTS, bool)]
        first = True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                self._at = start
                raise self._refuse("a set without an end")
            operator = self._text[self._at : self._at + 2]
            if not first and (operator == "&&" or (self._nests_sets and operator in ("--", "~~", "||"))):
                if self._ignore_case and not self._nests_sets:
                    raise self._refuse(operator)
                self._at += 2
                parts += [operator, np.zeros(NUM_CODE_POINTS, bool)]
                first = self._text.startswith("]", self._at)
                if self._text.startswith("[", self._at):
                    parts[-1] = self._set()
                continue
            first = False
            parts[-1] |= self._item()
        for operator, combine in (
            ("--", lambda left, right: left & ~right),
            ("&&", np.logical_and),
            ("~~", np.logical_xor),
            ("||", np.logical_or),
        ):
            while operator in parts[1::2]:
                at = 1 + 2 * parts[1::2].index(operator)
                parts[at - 1 : at + 2] = [combine(parts[at - 1], parts[at + 1])]
        members: CodePointSet = parts[0]
        return members

    def _item(self) -> CodePointSet:
        """Reads one item of a set: a character, a range, a class or, in the nesting syntax, a set."""
        posix = self._match(_POSIX)
        if posix:
            members = self._posix(posix["name"])
            return ~members if posix["negative"] else members
        if self._nests_sets and self._text.startswith("[", self._at):
            return self._set()
        low = self._member()
        if not isinstance(low, int):
            return low
        high: Any = low
        before = self._at
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            is_operator = self._nests_sets and self._text.startswith("--", self._at)
            if not is_operator:
                self._at += 1
                high = self._member()
                if not isinstance(high, int):  # `a-\w` is not a range: the sign stands for itself.
                    self._at, high = before, low
        members = np.zeros(NUM_CODE_POINTS, bool)
        members[low : high + 1] = True
        if self._ignore_case:
            for code in np.flatnonzero(members & _has_case()).tolist():
                members[list(_case_variants(code))] = True
        return members

    def _member(self) -> "int | CodePointSet":
        if self._text.startswith("\\b", self._at):
            self._at += 2
            return 8
        if self._text.startswith("\\", self._at):
            return self._escape()
        self._at += 1
        return ord(self._text[self._at - 1])

    def _posix(self, name: str) -> CodePointSet:
        if name == "word":
            return load_word_characters()
        if name == "space":
            return make_code_point_set(*map(ord, WHITE_SPACE))
        if name == "cntrl":
            return load_category("Cc")
        return _evaluate(f"{'(?i)' * self._ignore_case}[[:{name}:]]")


_LOWER_ASCII = {code: code + 32 for code in range(65, 91)}
_UPPER_ASCII = {code: code - 32 for code in range(97, 123)}


@cache
def _all_characters() -> str:
    return "".join(map(chr, range(NUM_CODE_POINTS)))


@cache
def _evaluate(expression: str) -> CodePointSet:
    """Returns the characters of the pinned Unicode version that match by the tables of the `regex` package.

    It is for properties, such as scripts, that this package has no table of. A newer version of Unicode adds members
    that are left out here, and hardly ever changes a property of an older character.
    """
    members = np.zeros(NUM_CODE_POINTS, bool)
    members[[match.start() for match in regex.finditer(expression, _all_characters())]] = True
    return members & ~load_category("Cn")


@cache
def _has_case() -> CodePointSet:
    """Returns the characters that have variants in another case."""
    return _evaluate(r"[\p{Changes_When_Casemapped}\p{Changes_When_Casefolded}]")


@cache
def _case_variants(code: int) -> tuple[int, ...]:
    """Returns the characters that (?i) matches a character with, itself included, by simple case folding.

    Unicode never changes the folding of a character, so leaving out newer characters is enough to pin it. The dotted
    and dotless i of Turkish, which the `regex` package adds, are no variants of `i`.
    """
    if code == ord("i") or code == ord("I"):
        return ord("I"), ord("i")
    if not _has_case()[code] or code in (0x130, 0x131):
        return (code,)
    cased = "".join(map(chr, np.flatnonzero(_has_case())))
    found = [ord(variant) for variant in regex.findall(f"(?i){regex.escape(chr(code))}", cased)]
    return tuple(sorted({code, *found}))


class PinnedPattern:
    """A pattern of the `regex` package with the pinned Unicode tables.

    Raises:
        NotPinnedError: the pattern has a part whose meaning would still depend on the package's version.
    """

    def __init__(self, expression: str) -> None:
        """Rewrites the pattern."""
        parser = _PatternReader(expression)
        # With stand-ins, a backreference would take all characters of a class for equal: then there are none.
        self._stand_ins = None if parser.has_backreferences else _choose_stand_ins(parser.pieces)
        self._pattern = regex.compile("".join(self._format_piece(piece) for piece in parser.pieces))

    def _format_piece(self, piece: Any) -> str:
        """Returns a piece as it is written in the rewritten pattern."""
        if isinstance(piece, str):
            return piece
        codes = np.array([piece]) if isinstance(piece, int) else np.flatnonzero(piece)
        if self._stand_ins is not None:
            codes = np.unique(self._stand_ins[codes]).astype(np.int64)
        if codes.size == 0:
            return "(?!)"
        edges = np.flatnonzero(np.diff(codes) != 1)
        firsts, lasts = codes[[0, *(edges + 1)]].tolist(), codes[[*edges, -1]].tolist()
        if codes.size == 1:
            return f"\\U{firsts[0]:08X}"
        return "[" + "".join(f"\\U{a:08X}-\\U{b:08X}" for a, b in zip(firsts, lasts, strict=True)) + "]"

    def translate(self, text: str) -> str:
        """Returns the text to run on; its characters correspond to those of `text` one by one."""
        if self._stand_ins is None:
            return text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        return self._stand_ins[codes].tobytes().decode("utf-32-le")

    def find_spans(self, translated: str, start: int, stop: int, seconds: float) -> Iterator[tuple[int, int]]:
        """Yields the start and the end of each match in the part from `start` to `stop` of a translated text.

        The part is matched as a text of its own: the pattern cannot look at what is around it.

        Raises:
            TimeoutError: matching takes more than `seconds`.
        """
        for match in self._pattern.finditer(translated[start:stop], timeout=seconds):
            yield start + match.start(), start + match.end()


def _choose_stand_ins(pieces: list[Any]) -> npt.NDArray[np.uint32]:
    """Returns the stand-in of each code point; a line end is a class of its own, and its own stand-in."""
    sets = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    literals = {piece for piece in pieces if isinstance(piece, int)} | {_LINE_END}
    # Neighbours are mostly in the same sets, so only the first of each run is looked at.
    edges = np.zeros(NUM_CODE_POINTS + 1, bool)
    edges[0] = True
    for members in sets:
        edges[1:-1] |= members[1:] != members[:-1]
    for code in literals:
        edges[code] = edges[code + 1] = True
    starts = np.flatnonzero(edges[:-1])
    rows = np.array([*(members[starts] for members in sets), *(starts == code for code in sorted(literals))]).T
    classes, numbers = np.unique(rows, axis=0, return_inverse=True)
    if len(classes) > _MAX_STAND_INS:
        raise NotPinnedError(f"sets that tell {len(classes)} classes of characters apart")
    stand_ins = np.where(starts == _LINE_END, _LINE_END, _FIRST_STAND_IN + numbers.reshape(-1)).astype(np.uint32)
    return np.repeat(stand_ins, np.diff([*starts, NUM_CODE_POINTS]))


def pin_pattern(expression: str) -> PinnedPattern:
    """Returns the pattern with the pinned Unicode tables.

    Raises:
        ValueError: it cannot be pinned; the message says why.
    """
    try:
        return PinnedPattern(expression)
    except NotPinnedError as error:
        raise ValueError(
            f"the pattern {expression!r} has {error}, and what that matches would depend on the version of the regex "
            f"package. Write it with sets and properties instead, which are those of Unicode {UNICODE_VERSION}."
        ) from error
