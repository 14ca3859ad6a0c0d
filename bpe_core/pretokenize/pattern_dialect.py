r"""Refuses the parts of a pattern that regular expression engines read differently.

Three engines split text by the same patterns: the `regex` package, whose syntax is ours; Oniguruma, in Hugging Face
tokenizers; and Rust's fancy-regex, in tiktoken. A pattern that they read differently would give other words, and so
other ids, in another program. `check_pattern` accepts only syntax that was compared in all three, so everything else is
refused, known or not. `REFUSED` says what each engine makes of the rest; `docs/patterns.md` holds the same table.

Characters that Unicode 16 does not assign are not compared: the engines have tables of different versions.
"""

import re
from contextlib import suppress
from functools import cache
from typing import NamedTuple, NoReturn

import regex

from bpe_core.pretokenize.common_starts import have_common_start
from bpe_core.pretokenize.repeat_rewrites import Node, is_wrongly_rewritten, make_concatenation, make_repeat
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS


class Construct(NamedTuple):
    """Syntax that engines read differently.

    Attributes:
        syntax: examples.
        regex: what the `regex` package reads.
        oniguruma: what Oniguruma (Hugging Face tokenizers) reads.
        rust: what fancy-regex (tiktoken) reads.
        instead: what to write instead.
    """

    syntax: str
    regex: str
    oniguruma: str
    rust: str
    instead: str


REFUSED = {
    "set-operation": Construct(
        r"`[a--b]` `[a~~b]` `[a||b]` `[&&a]` `[a&&]` `[a&&&b]` `(?i:[ab&&[^B]])`",
        "ordinary characters",
        "ordinary characters; `&&` intersects, also with nothing, and before case is ignored",
        "`--` subtracts, `~~` takes what is in one set only; `&&` intersects, also with nothing, and where case is "
        "ignored",
        r"`[a&&[^b]]`, with something on both sides and outside of `(?i:...)`; for the characters, `\&`, `\-`, `\~`",
    ),
    "nested-set": Construct(
        "`[a[bc]]`",
        "the character `[`",
        "a set within the set",
        "a set within the set",
        r"`[abc]` for the union, `\[` for the character",
    ),
    "posix-class": Construct(
        "`[[:alpha:]]`",
        "Unicode characters",
        "Unicode characters",
        "ASCII characters only",
        r"`\p{Alphabetic}` or `[A-Za-z]`",
    ),
    "range-of-class": Construct(
        r"`[\d-z]` `[a-\d]`", "the character `-`", "an error", "an error", r"`\-`, or put `-` last in the set"
    ),
    "range-of-bracket": Construct(
        "`[]-a]`", "a range from `]`", "a range from `]`", "the characters `]`, `-` and `a`", r"`[\]-a]`"
    ),
    "word-character": Construct(
        r"`\w` `\W` `\p{Word}`",
        "includes the joiners U+200C and U+200D",
        "includes neither, and outside of sets also holds `²³¹¼½¾`",
        "includes the joiners U+200C and U+200D",
        r"a set, such as `[\p{L}\p{M}\p{N}_]` for `\w` and `[^\p{L}\p{M}\p{N}_]` for `\W`",
    ),
    "word-edge": Construct(
        r"`\b` `\B` `\<` `\>`",
        r"edges of runs of its `\w`; `\<` is the character `<`",
        r"edges of runs of its `\w`; `\<` is the character `<`",
        r"edges of runs of its `\w`; `\<` and `\>` are edges too",
        r"look-arounds with a set, such as `(?<![\p{L}\p{N}])` and `(?![\p{L}\p{N}])`; `<` for the character",
    ),
    "line-anchor": Construct(
        "`^` `$`",
        "start of the text; end of the text, or before a line end there",
        "start and end of every line",
        "start and end of the text",
        r"`\A` and `\z` for the text, `(?<![^\n])` and `(?![^\n])` for lines",
    ),
    "end-anchor": Construct(
        r"`\Z`",
        "end of the text",
        "end of the text, or before a line end there",
        "end of the text, or before line ends there",
        r"`\z`",
    ),
    "multi-line-flag": Construct(
        "`(?m)` `(?m:...)`",
        "`^` and `$` are at every line",
        "`.` matches line ends",
        "`^` and `$` are at every line",
        r"`(?<![^\n])` and `(?![^\n])` for the edges of lines, `[\s\S]` for any character",
    ),
    "flag-within": Construct(
        "`a(?i)b|c`",
        "changes the whole pattern",
        "changes the rest of the group, and makes the rest a group of its own",
        "changes the rest of the group",
        "`(?i:...)`",
    ),
    "case-sequence": Construct(
        "`(?i:ss)` `ff` `fi` `fl` `st`",
        "two characters",
        "also one character that folds to both: `ß`, `ﬀ`, `ﬁ`, `ﬂ`, `ﬆ`",
        "two characters",
        "put one of the letters in a set: `(?i:s[s])`",
    ),
    "case-character": Construct(
        r"`(?i:ß)` `(?i:ı)` `(?i:[à-ý])` `(?i:(a)\1)`",
        "one character in the other case; `ı` equals `I`",
        "also several characters, such as `ss` for `ß`",
        "one character in the other case",
        "list the cases outside of `(?i:...)`: `(?:ß|ẞ|ss)`",
    ),
    "case-property": Construct(
        r"`(?i:\p{Lu})` `(?i:\p{L})`",
        "`Lu`, `Ll` and `Lt` are all letters with case; others as without the flag",
        "as without the flag, and in sets the other cases too",
        "the other cases of all characters too, such as U+0345 in `L`",
        r"the property outside of `(?i:...)`",
    ),
    "counted-possessive": Construct(
        "`a{1,3}+` `a{2}+` `a{2,}+`",
        "gives nothing back",
        "repeats the repeat",
        "gives nothing back",
        "`(?>a{1,3})`, or `a{1,3}` if what follows cannot begin with `a`",
    ),
    "counted-lazy": Construct("`a{2}?`", "`a{2}`", "`(?:a{2})?`", "`a{2}`", "`a{2}` or `(?:a{2})?`"),
    "brace": Construct(
        "`a{,2}` `a{,}` `(?:a){e<=1}` `{`",
        "`{,}` is `*`, `{e}` allows errors in the match",
        "characters, except `{,2}`",
        "characters, except `{,2}`",
        r"`{0,2}` for a repeat, `\{` for the character",
    ),
    "repeated-empty": Construct(
        "`(?:a?)+` `(?:|a)*`",
        "stops after an iteration that is empty",
        "stops after an iteration that is empty",
        "tiktoken crashes on a match that is empty",
        "repeat something that cannot be empty: `a*`",
    ),
    "empty-first": Construct(
        "`|ab` `(?=a)|ab` `a*?`",
        "after an empty match, looks for a longer one at the same place",
        "goes to the next character",
        "tiktoken crashes on a match that is empty",
        "put what can be empty last, or leave it out: `ab|(?=a)`",
    ),
    "merged-repeat": Construct(
        r"`b+a?b+` `b+a??b*` `(?:b+(?:ab+)?)+` `(b+)?\1`",
        "as it is written",
        "as it is written",
        "tiktoken 0.14 merges the repeats and then matches other texts, such as a single `b` for `b+a?b+`",
        "one of the two equal repeats in another way, such as `b+a?[b]+`",
    ),
    "common-start": Construct(
        "`a+a|a+b` `a?b|a?c`",
        "tries each length of the start for the first alternative, then for the next",
        "tries each length of the start for the first alternative, then for the next",
        "tiktoken 0.14 reads the start once, `a+(?:a|b)`, and tries all alternatives for each of its lengths",
        "the start once, before a group: `a+(?:a|b)`",
    ),
    "repeated-group": Construct(
        r"`(a|b)+\1` `(?:(a)\1)+` `(?:(a)|b)+\1`",
        "may compare with what the group matched in an earlier iteration",
        "compares with the last match of the group",
        "compares with the last match of the group",
        r"the reference without the repeat, or the repeat without the reference: `(?:a|b)+`",
    ),
    "look-behind": Construct(
        "`(?<=a+)b` `(?<!a?+b)c`",
        "reads backwards from the end",
        "tries some lengths, forwards",
        "reads forwards, or an error",
        "a look-behind of fixed length, such as `(?<=a)` or `(?<!a|bc)`",
    ),
    "hexadecimal-digit": Construct(
        r"`\h` `\H`", "blanks", "hexadecimal digits", "hexadecimal digits", r"`[\t\p{Zs}]` or `[0-9A-Fa-f]`"
    ),
    "not-newline": Construct(
        r"`\N` `\N{...}`",
        "the character `N`; a character by its name",
        "anything but a line end",
        "anything but a line end",
        r"`[^\n]`, or the character itself",
    ),
    "bare-property": Construct(r"`\pL`", r"`\p{L}`", "the characters `pL`", r"`\p{L}`", r"`\p{L}`"),
    "long-code": Construct(
        r"`\U0001F600`",
        "a character by its code",
        "the character `U` and digits",
        "a character by its code",
        "the character itself",
    ),
    "byte": Construct(
        r"`\xe9`", "the character U+00E9", "a byte, which is not a whole character", "the character U+00E9", r"`\u00e9`"
    ),
    "octal": Construct(
        r"`\0` `\012` `\101`",
        "a character by its octal code",
        "a character by its octal code",
        "a reference to a group",
        r"`\x0a`",
    ),
    "property-name": Construct(
        r"`\p{xdigit}` `\p{print}` `\p{graph}`",
        "its own definition",
        "its own definition",
        "its own definition, or an error",
        r"a general category, such as `\p{Lu}`, a script, such as `\p{Han}`, or an explicit set",
    ),
    "other": Construct(
        r"`\X` `\K` `\G` `\R` `(?x)` `(?V1)` `(?R)` `(?(1)a|b)` `(?|a|b)` `(?=a)*` and all else",
        "accepts it",
        "was not compared, or is an error",
        "was not compared, or is an error",
        "sets, groups, alternatives and repeats; docs/patterns.md lists what is accepted",
    ),
}
"""What is refused, by a key. The keys name the constructs in tests and in `PatternDialectError`."""


class PatternDialectError(ValueError):
    """A pattern has a part that engines read differently; the message says which, where and why.

    Attributes:
        key: a key of `REFUSED`.
    """

    def __init__(self, message: str, key: str = "other") -> None:
        """Keeps the message and the key; workers pass the error on by its message alone."""
        super().__init__(message)
        self.key = key


SAME_PROPERTIES = frozenset(
    """
    assigned c casedletter cc cf closepunctuation cn cntrl co combiningmark connectorpunctuation control cs
    currencysymbol dashpunctuation decimalnumber digit enclosingmark finalpunctuation format
    initialpunctuation l lc letter letternumber lineseparator ll lm lo lowercaseletter lt lu m mark mathsymbol
    mc me mn modifierletter modifiersymbol n nd nl no nonspacingmark number openpunctuation other otherletter
    othernumber otherpunctuation othersymbol p paragraphseparator pc pd pe pf pi po privateuse ps punct
    punctuation s sc separator sk sm so spaceseparator spacingmark symbol titlecaseletter unassigned
    uppercaseletter z zl zp zs

    alphabetic uppercase whitespace ideographic unifiedideograph emoji emojipresentation emojimodifier
    emojimodifierbase emojicomponent math dash hexdigit asciihexdigit idstart idcontinue xidstart xidcontinue
    joincontrol defaultignorablecodepoint variationselector regionalindicator quotationmark radical
    patternwhitespace caseignorable extender any ascii assigned

    adlam ahom anatolianhieroglyphs arabic armenian avestan balinese bamum bassavah batak bengali bhaiksuki
    bopomofo brahmi braille buginese buhid canadianaboriginal carian caucasianalbanian chakma cham cherokee
    chorasmian common coptic cuneiform cypriot cyprominoan cyrillic deseret devanagari divesakuru dogra
    duployan egyptianhieroglyphs elbasan elymaic ethiopic garay georgian glagolitic gothic grantha greek
    gujarati gunjalagondi gurmukhi gurungkhema hangul han hanifirohingya hanunoo hatran hebrew hiragana
    imperialaramaic inherited inscriptionalpahlavi inscriptionalparthian javanese kaithi kannada katakana kawi
    kayahli kharoshthi khitansmallscript khmer khojki khudawadi kiratrai lao latin lepcha limbu lineara
    linearb lisu lycian lydian mahajani makasar malayalam mandaic manichaean marchen masaramgondi medefaidrin
    meeteimayek mendekikakui meroiticcursive meroitichieroglyphs miao modi mongolian mro multani myanmar
    nabataean nagmundari nandinagari newa newtailue nko nushu nyiakengpuachuehmong ogham olchiki oldhungarian
    olditalic oldnortharabian oldpermic oldpersian oldsogdian oldsoutharabian oldturkic olduyghur olonal oriya
    osage osmanya pahawhhmong palmyrene paucinhau phagspa phoenician psalterpahlavi rejang runic samaritan
    saurashtra sharada shavian siddham signwriting sinhala sogdian sorasompeng soyombo sundanese sunuwar
    sylotinagri syriac tagalog tagbanwa taile taitham taiviet takri tamil tangsa tangut telugu thaana thai
    tibetan tifinagh tirhuta todhri toto tulutigalari ugaritic vai vithkuqi wancho warangciti yezidi yi
    zanabazarsquare
    """.split()
)
"""The properties that all engines define alike for the characters of Unicode 16: categories, others, and scripts.

The names are in lower case and without `_`, `-` and blanks, as the engines compare them.
"""

_CASELESS_PROPERTIES = frozenset({"n", "nd", "p", "s", "z", "zs", "han"})
"""Properties whose characters have no other case outside of the property."""

_WITHOUT_SEPARATORS = str.maketrans("", "", "_ -")
_FOLDED_PAIRS = frozenset({"ss", "ff", "fi", "fl", "st"})

_REPEAT = re.compile(r"[?*+]|\{(?P<least>\d+)(?P<comma>,)?(?P<most>\d*)\}", re.ASCII)
_NAMED_PROPERTY = re.compile(r"\\[pP]\{\^?(?P<name>[^{}]+)\}", re.ASCII)
_CODE = re.compile(r"\\(?:x[0-7][0-9A-Fa-f]|u[0-9A-Fa-f]{4})")
_BYTE = re.compile(r"\\x[89A-Fa-f][0-9A-Fa-f]")
_GROUP_OPENING = re.compile(
    r"\((?:\?(?:(?P<look><?[=!])|[:>]|(?P<name>P?<[A-Za-z_]\w*>)|(?P<flags>-?[a-zA-Z]+(?:-[a-z]+)?)(?P<end>[:)])))?"
)
_CLASS_WITH_LINE_END = r"\\[sD]|\\P\{(?:[LMNPS]|Lu|Ll|Lt|Lm|Lo|Nd|Nl|No)\}|\[\^0-9\]"
_NOTHING_FOLLOWS = re.compile(
    rf"(?<!\\)\(\?[=!](?:\((?:\?:)?(?:[^()\\[\]{{}}]|\\[dsp](?:\{{\w+\}})?|\[0-9\])\{{\d\}}\)\*\(\?:)?"
    rf"(?:{_CLASS_WITH_LINE_END})\|(?P<end>\$)\)"
)
"""A look-ahead such as `(?=\\s|$)`. If the class holds the line end, it is there wherever engines differ about `$`."""

_REFUSED_ESCAPES = {
    **dict.fromkeys("wW", "word-character"),
    **dict.fromkeys("bB<>", "word-edge"),
    **dict.fromkeys("hH", "hexadecimal-digit"),
    **dict.fromkeys("pP", "bare-property"),
    **dict.fromkeys("0", "octal"),
    "Z": "end-anchor",
    "N": "not-newline",
    "U": "long-code",
    "x": "byte",
}


class _Matches(NamedTuple):
    """What a part of a pattern can match.

    Attributes:
        empty: it can match the empty string.
        longer: it can match a longer string.
        empty_first: it may prefer the empty string where a longer one matches too.
        node: its parts.
    """

    empty: bool
    longer: bool
    empty_first: bool
    node: Node


_NOTHING = _Matches(True, False, False, ("concatenation", []))


class _IncompleteError(Exception):
    """The pattern is no regular expression, which the `regex` package explains better."""


class _DialectReader:
    """Reads an expression by recursive descent and raises `PatternDialectError` for what it does not know as equal.

    Attributes:
        foreign: parts that Hugging Face tokenizers cannot read at all, so that no text is split differently.
    """

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self._ignore_case = False
        self._is_inside_look_around = False
        self._is_inside_look_behind = False
        self._previous = ""  # The ASCII letter just before, if case is ignored there.
        self._has_names = False
        self._groups: list[_Matches | None] = []  # What each numbered group matches; None if no reference is allowed.
        self._references: list[int] = []  # The indices of the groups that references name, in order.
        self._repeated_groups: set[int] = set()  # The indices of groups inside of repeated parts.
        self._spellings: dict[str, str] = {}  # How the pattern writes what matches one character, by its key.
        self._closed_group = -1  # The index of the last numbered group that was closed.
        self._merged_groups: set[int] = set()  # The indices of groups with repeats that tiktoken's engine merges.
        self.foreign: list[str] = []

    def read(self) -> None:
        """Reads the whole expression."""
        matches = self._read_alternatives()
        if self._at < len(self._text):
            raise _IncompleteError
        if matches.empty_first:
            self._refuse("empty-first", self._text, 0)

    def _refuse(self, key: str, part: str, position: int | None = None) -> NoReturn:
        """Raises the error about a part of the expression, which is at the present position if none is given."""
        construct = REFUSED[key]
        position = self._at if position is None else position
        raise PatternDialectError(
            f"pattern {self._text!r} has {part!r} at character {position}, which engines read differently, so the same "
            f"text could be split into other words elsewhere. The regex package: {construct.regex}. Oniguruma (Hugging "
            f"Face tokenizers): {construct.oniguruma}. Rust (tiktoken): {construct.rust}. Write instead: "
            f"{construct.instead}",
            key,
        )

    def _next_is(self, *texts: str) -> bool:
        return self._text.startswith(texts, self._at)

    def _peek(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _read_alternatives(self, previous: str = "") -> _Matches:
        """Reads alternatives up to the end of their group; `previous` is the letter before them, see `_previous`."""
        all_matches = _Matches(False, False, False, ())
        nodes = []
        first = self._at
        while True:
            self._previous = previous
            one = self._read_concatenation()
            nodes.append(one.node)
            node = nodes[0] if len(nodes) == 1 else ("alternatives", nodes)
            empty_first = all_matches.empty_first or one.empty_first or (all_matches.empty and one.longer)
            all_matches = _Matches(all_matches.empty or one.empty, all_matches.longer or one.longer, empty_first, node)
            if not self._next_is("|"):
                break
            self._at += 1
        if have_common_start(nodes, self._spellings):
            self._refuse("common-start", self._text[first : self._at], first)
        return all_matches

    def _read_concatenation(self) -> _Matches:
        parts = [_NOTHING]
        nodes = []
        first = self._at
        while self._at < len(self._text) and not self._next_is("|", ")"):
            if self._skip_comment():
                continue
            start, num_groups, num_references = self._at, len(self._groups), len(self._references)
            previous, self._previous = self._previous, ""
            part = self._read_atom(previous)
            edge = part is None and self._text[start : self._at]
            while self._skip_comment():
                pass
            parts.append(self._read_quantifier(part, start, num_groups, num_references))
            node = parts[-1].node
            if part is None:
                node = ("assertion", edge if edge in (r"\A", r"\z") else start)
            nodes += [node] * (node != _NOTHING.node)
        node = make_concatenation(nodes)
        if is_wrongly_rewritten(node):
            self._refuse("merged-repeat", self._text[first : self._at], first)
        empty = all(part.empty for part in parts)
        longer = any(part.longer for part in parts)
        return _Matches(empty, longer, empty and any(part.empty_first for part in parts), node)

    def _skip_comment(self) -> bool:
        if not self._next_is("(?#"):
            return False
        end = self._text.find(")", self._at)
        if end < 0:
            raise _IncompleteError
        if "\\" in self._text[self._at : end]:
            self._refuse("other", self._text[self._at : end + 1])
        self._at = end + 1
        return True

    def _read_quantifier(self, matches: _Matches | None, start: int, num_groups: int, num_references: int) -> _Matches:
        """Reads the repeat of a part, if one follows, and returns what the repeated part matches.

        Args:
            matches: what the part matches; None if it is an assertion, which must not be repeated.
            start: the position of the part.
            num_groups: how many numbered groups begin before the part.
            num_references: how many references are before the part.
        """
        quantifier = _REPEAT.match(self._text, self._at)
        if not quantifier:
            return matches or _NOTHING
        if matches is None:
            self._refuse("other", self._text[start : quantifier.end()], start)
        is_counted = quantifier["least"] is not None
        least = int(quantifier["least"]) if is_counted else int(quantifier.group() == "+")
        most = (int(quantifier["most"] or 1_000) if quantifier["comma"] else least) if is_counted else None
        if quantifier.group() == "?":
            most = 1
        self._previous = ""
        self._at = quantifier.end()
        suffix = self._peek()
        if suffix == "+" and is_counted:
            self._refuse("counted-possessive", quantifier.group() + suffix, quantifier.start())
        if suffix == "?" and is_counted and not quantifier["comma"]:
            self._refuse("counted-lazy", quantifier.group() + suffix, quantifier.start())
        if suffix and suffix in "?+":
            self._at += 1
        if _REPEAT.match(self._text, self._at):
            self._refuse("other", self._text[quantifier.start() : self._at + 1], quantifier.start())
        if self._is_inside_look_behind and least != most:
            self._refuse("look-behind", self._text[start : self._at], start)
        if matches.empty and most != 1:
            self._refuse("repeated-empty", self._text[start : self._at], start)
        if most != 1:
            if any(index >= num_groups for index in self._references[num_references:]):
                self._refuse("repeated-group", self._text[start : self._at], start)
            self._repeated_groups.update(range(num_groups, len(self._groups)))
        longer = matches.longer and most != 0
        empty = matches.empty or least == 0
        upper = most if quantifier["most"] or not quantifier["comma"] else None
        node, is_merged = make_repeat(matches.node, least, upper, greedy=suffix != "?")
        if is_merged:
            self._merged_groups.add(self._closed_group)
        if is_wrongly_rewritten(node):
            self._refuse("merged-repeat", self._text[start : self._at], start)
        node = ("atomic", node) if suffix == "+" else node
        return _Matches(empty, longer, empty and longer and (suffix == "?" or matches.empty_first), node)

    def _read_atom(self, previous: str) -> _Matches | None:
        """Reads one part; returns what it matches, or None if it is an assertion."""
        character = self._peek()
        if character == "(":
            return self._read_group(previous)
        if character == "[":
            start = self._at
            key = self._read_set()
            self._previous = ""
            return self._match_one(key, start)
        if character == "\\":
            return self._read_escape(previous)
        if character == "$" and self._at in {found.start("end") for found in _NOTHING_FOLLOWS.finditer(self._text)}:
            self._at += 1
            return None
        if character in "^$":
            self._refuse("line-anchor", character)
        if character == "{":
            self._refuse("brace", self._peek(12))
        if character in "?*+":
            raise _IncompleteError
        self._at += 1
        if character == ".":
            return self._match_one("\n.", self._at - 1)
        self._check_character(character, previous)
        return self._match_one(character, self._at - 1)

    def _match_one(self, key: str, start: int) -> _Matches:
        """Returns what a part that matches one character matches; parts that engines take for equal have equal keys."""
        key = _NAMED_PROPERTY.sub(lambda found: found.group()[:2] + found.group()[2:].lower(), key)
        key = key.replace(r"\P{^", r"\p{").replace(r"\p{^", r"\P{")
        spelling = self._text[start : self._at]
        self._spellings.setdefault(key, f"(?i:{spelling})" if "(?i" in self._text else spelling)
        return _Matches(False, True, False, ("character", key))

    def _check_character(self, character: str, previous: str, position: int | None = None) -> None:
        """Checks a character that stands for itself, which has just been read."""
        position = self._at - 1 if position is None else position
        if 0xD800 <= ord(character) <= 0xDFFF:
            self._refuse("other", character, position)
        if not self._ignore_case:
            return
        if not character.isascii() and character in _find_long_foldings():
            self._refuse("case-character", character, position)
        pair = (previous + character).lower()
        if pair in _FOLDED_PAIRS:
            self._refuse("case-sequence", previous + character, position)
        self._previous = character

    def _read_group(self, previous: str) -> _Matches | None:
        start = self._at
        group = _GROUP_OPENING.match(self._text, start)
        assert group
        if group.group() == "(" and self._text.startswith(("?", "*"), group.end()):
            self._refuse("other", self._peek(12))
        self._at = group.end()
        outside = self._ignore_case, self._is_inside_look_around, self._is_inside_look_behind
        if group["flags"]:
            previous = ""
            if self._set_flags(group):
                return _NOTHING
        number = len(self._groups)
        if group.group() == "(":
            self._groups.append(None)
        elif group["name"]:
            self._has_names = True
            self.foreign += ["(?P"] * group.group().startswith("(?P")
        if group["look"]:
            previous = ""
            self._is_inside_look_around = True
            self._is_inside_look_behind |= "<" in group["look"]
        matches = self._read_alternatives(previous)
        if not self._next_is(")"):
            raise _IncompleteError
        self._at += 1
        if group.group() == "(":
            self._closed_group = number
            self._groups[number] = None if self._is_inside_look_around else matches
        if group["look"] == "<!" and len(self._groups) > number:
            self.foreign.append("(?<!")  # Oniguruma allows no numbered group in it.
        self._ignore_case, self._is_inside_look_around, self._is_inside_look_behind = outside
        if group["look"] or group["flags"]:
            self._previous = ""
        kind = "atomic" if group.group() == "(?>" else "group" if group.group() == "(" or group["name"] else ""
        return None if group["look"] else matches._replace(node=(kind, matches.node)) if kind else matches

    def _set_flags(self, group: "re.Match[str]") -> bool:
        """Sets the flags of a group that begins; returns whether they apply to the rest of the pattern instead."""
        flags, is_global = group["flags"], group["end"] == ")"
        if "m" in flags:
            self._refuse("multi-line-flag", group.group(), group.start())
        if flags not in ("i", "s", "-i") or (is_global and flags == "-i"):
            self._refuse("other", group.group(), group.start())
        if is_global and group.start() > 0:
            self._refuse("flag-within", group.group(), group.start())
        if flags == "s":
            self.foreign.append("(?s")
        else:
            self._ignore_case = flags == "i"
        return is_global

    def _read_escape(self, previous: str) -> _Matches | None:
        """Reads a backslash and what follows it, outside of sets."""
        start = self._at
        escaped = self._text[start + 1 : start + 2]
        if escaped and escaped in "Az":
            self._at += 2
            return None
        if escaped and escaped in "123456789":
            return self._read_reference(int(escaped))
        character = self._read_class_or_character(previous, is_in_set=False)
        return self._match_one(character or self._text[start : self._at], start)

    def _read_reference(self, number: int) -> _Matches:
        part = self._peek(2)
        group = self._groups[number - 1] if number <= len(self._groups) else None
        if self._text[self._at + 2 : self._at + 3].isdecimal():
            self._refuse("octal", self._peek(4))
        if group is None or self._has_names or "(?<" in self._text.replace("(?<=", "").replace("(?<!", ""):
            self._refuse("other", part)
        if self._ignore_case:
            self._refuse("case-character", part)
        if number - 1 in self._merged_groups:
            self._refuse("merged-repeat", part)
        if number - 1 in self._repeated_groups:
            self._refuse("repeated-group", part)
        self._references.append(number - 1)
        self._at += 2
        return _Matches(group.empty, True, False, ("reference", number))

    def _read_class_or_character(self, previous: str, *, is_in_set: bool) -> str | None:
        """Reads an escape that is a class or a character, inside or outside of a set; returns the character."""
        start = self._at
        escaped = self._text[start + 1 : start + 2]
        found = _NAMED_PROPERTY.match(self._text, start)
        if found:
            self._check_property(found)
            self._at = found.end()
            return None
        code = _CODE.match(self._text, start)
        if code:
            self._at = code.end()
            character = chr(int(code.group()[2:], 16))
            self._check_character(character, previous, start)
            return character
        if not escaped:
            raise _IncompleteError
        is_plain = escaped.isascii() and not escaped.isalnum() and (is_in_set or escaped not in "<>")
        if not is_plain and escaped not in "sSdDrntfva":
            key = "other" if is_in_set and escaped == "b" else _REFUSED_ESCAPES.get(escaped, "other")
            if key == "byte" and not _BYTE.match(self._text, start):
                key = "other"
            self._refuse(key, self._peek(4 if key in ("byte", "octal") else 12 if key == "long-code" else 2))
        self._at += 2
        if escaped in "sSdD":
            return None
        return escaped if is_plain else {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}[escaped]

    def _check_property(self, found: "re.Match[str]") -> None:
        name = found["name"].translate(_WITHOUT_SEPARATORS).lower()
        if name in ("word", "w"):
            self._refuse("word-character", found.group())
        if name not in SAME_PROPERTIES:
            self._refuse("property-name", found.group())
        if self._ignore_case and name not in _CASELESS_PROPERTIES:
            self._refuse("case-property", found.group())

    def _read_set(self) -> str:
        """Reads a set, from its `[` to its `]`; returns its members in order, each written in one way."""
        key = self._peek(2) if self._text.startswith("^", self._at + 1) else "["
        self._at += 2 if self._text.startswith("^", self._at + 1) else 1
        first = True
        while first or not self._next_is("]"):
            if self._at >= len(self._text):
                raise _IncompleteError
            if first and self._next_is("]-") and not self._next_is("]-]"):
                self._refuse("range-of-bracket", self._peek(3))
            if not first and self._next_is("&&"):
                key += self._read_intersection()
                continue
            first = False
            if self._next_is("&&", "--", "~~", "||"):
                self._refuse("set-operation", self._peek(2))
            member_at = self._at
            start = self._read_member()
            key += start or self._text[member_at : self._at]
            if not self._next_is("-") or self._text[self._at + 1 : self._at + 2] in ("]", ""):
                continue
            if self._next_is("--", "-&&"):
                self._refuse("set-operation", self._peek(2))
            dash = self._at
            self._at += 1
            stop = self._read_member()
            key += f"-{stop}"
            if start is None or stop is None:
                self._refuse("range-of-class", self._text[dash : self._at], dash)
            if self._ignore_case and not (start + stop).isascii():
                self._refuse("case-character", f"{start}-{stop}", dash - 1)
        self._at += 1
        return key

    def _read_intersection(self) -> str:
        """Reads `&&` in a set and, if one follows, the set with which it intersects; returns what it has read."""
        if self._ignore_case or self._text[self._at + 2 : self._at + 3] in ("&", "]"):
            self._refuse("set-operation", self._peek(3))
        self._at += 2
        if not self._next_is("["):
            return "&&"
        if self._next_is("[:", "[.", "[="):
            self._read_member()
        key = self._read_set()
        if not self._next_is("]", "&&", "--", "~~", "||"):
            self._refuse("nested-set", self._peek())
        return f"&&{key}]"

    def _read_member(self) -> str | None:
        """Reads a character or a class in a set; returns the character."""
        if self._next_is("[:", "[.", "[="):
            self._refuse("posix-class", self._text[self._at : self._text.find("]", self._at) + 1] or "[:")
        if self._next_is("["):
            self._refuse("nested-set", "[")
        if self._next_is("\\"):
            return self._read_class_or_character("", is_in_set=True)
        self._at += 1
        character = self._text[self._at - 1]
        self._check_character(character, "")
        return character


@cache
def _find_long_foldings() -> frozenset[str]:
    """Returns the characters that fold to several, as `ß` to `ss`, the characters that these are, and the dotless i.

    Unicode never changes how an assigned character folds, so the Python version makes no difference for Unicode 16.
    """
    folded = ((character, character.casefold()) for character in map(chr, range(NUM_CODE_POINTS)))
    return frozenset("ı").union(*({one, *several} for one, several in folded if len(several) > 1))


def check_pattern(expression: str) -> None:
    r"""Checks that an expression has no part that engines read differently.

    What is no regular expression at all is left to the `regex` package, which says why.

    Raises:
        PatternDialectError: the expression has such a part, or one that was not compared.

    >>> check_pattern(r"[\p{L}&&[^\p{Han}]]+")
    >>> check_pattern(r"[\p{L}--\p{Han}]+")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bpe_core.pretokenize.pattern_dialect.PatternDialectError: pattern ... has '--' at character 6, which engines ...
    """
    _read_dialect(expression)


def compile_with_regex(expression: str) -> "regex.Pattern[str]":
    """Returns an accepted expression as the `regex` package compiles it.

    Raises:
        regex.error: it is no regular expression.
    """
    return regex.compile(expression, regex.V1 if "&&" in expression else 0)  # Only version 1 reads `[a&&[b]]` alike.


def find_foreign_part(expression: str) -> str | None:
    """Returns a part of an accepted expression that Hugging Face tokenizers cannot read, or None.

    Such a part never splits text differently: the library refuses to load the pattern.
    """
    foreign = _read_dialect(expression)
    return foreign[0] if foreign else None


@cache
def _read_dialect(expression: str) -> tuple[str, ...]:
    reader = _DialectReader(expression)
    with suppress(_IncompleteError):
        reader.read()
    return tuple(reader.foreign)
