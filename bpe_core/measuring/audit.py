"""Finds tokens of a vocabulary that deserve a look.

Some need counts: tokens that are unused, rare, or mostly merged into longer ones ("intermediate"), and those that a
model has likely not learned ("under-trained"). The others need the vocabulary alone: tokens that no text is encoded to,
that are not valid UTF-8, that look like special tokens, the longest, and those that differ in case and a leading space.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bpe_core.formats.ranks import find_last_merges, find_unreachable_ids
from bpe_core.kernels import Int64s
from bpe_core.measuring.token_display import escape_token
from bpe_core.merging.alphabet import MARKER, WordCounts, word_counts_to_arrays
from bpe_core.pretokenize.unicode_normalization import fold_case
from bpe_core.tokenizer import Tokenizer

KNOWN_SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    *("<|padding|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|user|>", "<|assistant|>", "<|system|>"),
    *("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<sep>", "<cls>"),
    *("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]", "[INST]", "[/INST]", "<<SYS>>", "</w>"),
    *("endoftext", "im_start", "im_end"),
)
"""Spellings of control tokens in common tokenizers and chat formats."""

_BETWEEN_BARS = re.compile(r"<\|[^<>|\s]+\|>")
_BRACKETS = frozenset("<>|[]")
_MIN_PART_CHARACTERS = 4
_NUM_RELATED_SHOWN = 8


@dataclass(frozen=True, eq=False)
class TokenUses:
    """How often tokens occur while a text is encoded, by id.

    Attributes:
        final: int64, one per id: how often the id is in the encoded text.
        intermediate: int64, one per id: how often the token is made and then merged into a longer one.
    """

    final: Int64s
    intermediate: Int64s

    @property
    def final_share(self) -> npt.NDArray[np.float64]:
        """Final uses divided by all uses, one per id; 1 for a token that is never made (after LiteToken, 2026)."""
        uses = self.final + self.intermediate
        return np.where(uses > 0, self.final / np.maximum(uses, 1), 1.0)


@dataclass(frozen=True)
class AuditEntry:
    """A token that was found.

    Attributes:
        id: Its id.
        token: Its spelling, as `escape_unprintable` shows it.
        figure: The number that it was found by, which `Finding.meaning` explains; None if there is none.
        related: Other ids: what the merges make of its spelling, or its twins.
        note: The special token that it looks like, or empty.
    """

    id: int
    token: str
    figure: float | None = None
    related: tuple[int, ...] = ()
    note: str = ""

    def describe(self, tokenizer: Tokenizer) -> str:
        """Returns the entry on one line, with the first related tokens spelled out."""
        parts = [f"{self.id:>7} {self.token!r}"]
        if self.figure is not None:
            parts.append(f"{self.figure:.3f}" if isinstance(self.figure, float) else f"{self.figure:,}")
        if self.related:
            parts.append(" ".join(repr(escape_token(tokenizer, id_)) for id_ in self.related[:_NUM_RELATED_SHOWN]))
        return "  ".join([*parts, self.note] if self.note else parts)


@dataclass(frozen=True)
class Finding:
    """The tokens found for one reason.

    Attributes:
        name: The reason in a word or two, such as `unused`.
        meaning: The reason in a sentence, with what `AuditEntry.figure` and `AuditEntry.related` are.
        entries: The tokens.
    """

    name: str
    meaning: str
    entries: tuple[AuditEntry, ...]


@dataclass(frozen=True)
class TokenAudit:
    """All findings about a vocabulary.

    Attributes:
        vocab_size: Number of ids.
        num_special: How many of them are special tokens.
        findings: What was found, one item per reason.
    """

    vocab_size: int
    num_special: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        """Returns the finding of this name."""
        return next(finding for finding in self.findings if finding.name == name)

    def iter_rows(self) -> Iterator[tuple[str, int, str, float | None, str, str]]:
        """Yields finding, id, token, figure, related ids separated by spaces, and note of every entry."""
        for finding in self.findings:
            for entry in finding.entries:
                yield finding.name, entry.id, entry.token, entry.figure, " ".join(map(str, entry.related)), entry.note


def audit_tokens(
    tokenizer: Tokenizer,
    word_counts: WordCounts | None = None,
    id_counts: npt.ArrayLike | None = None,
    *,
    rare_below: int = 10,
    intermediate_below: float = 0.1,
    num_listed: int = 100,
) -> TokenAudit:
    """Returns all findings that the given counts allow.

    Args:
        tokenizer: The tokenizer to look into.
        word_counts: A table with the columns `word` and `count`, or a dict, of words that the tokenizer's own
            pre-tokenizer made. Without it, the findings on uses are left out.
        id_counts: How often each id occurs in the training data, `vocab_size` integers. Without it, the finding on
            under-trained tokens is left out.
        rare_below: A token with fewer final uses than this is rare.
        intermediate_below: A token with a smaller share of final uses than this is intermediate.
        num_listed: How many of the longest, and of the likely under-trained, are listed.

    Raises:
        ValueError: The counts are malformed, see `word_counts_to_arrays` and `find_least_counted`.
    """
    findings: list[Finding] = []
    if word_counts is not None:
        uses = count_token_uses(tokenizer, word_counts)
        findings += [
            Finding(
                "unused",
                "in no encoded text; figure: how often it is merged into a longer token",
                find_unused(tokenizer, uses),
            ),
            Finding(
                "rare",
                f"fewer than {rare_below} times in encoded text; figure: how often",
                find_rare(tokenizer, uses, rare_below),
            ),
            Finding(
                "intermediate",
                "mostly merged into longer tokens; figure: share of uses that stay in the encoded text, below "
                f"{intermediate_below}",
                find_mostly_intermediate(tokenizer, uses, intermediate_below),
            ),
        ]
    if id_counts is not None:
        under = find_least_counted(tokenizer, id_counts, num_listed)
        findings.append(Finding("under-trained", "rarest in the training data; figure: how often", under))
    findings += [
        Finding(
            "unreachable",
            "no text is encoded to it; related: what the merges make of its spelling",
            find_unreachable(tokenizer),
        ),
        Finding("not-utf8", "not valid UTF-8 by itself; figure: length in bytes", find_not_utf8(tokenizer)),
        Finding(
            "special-look-alike",
            "looks like a special token, or a part of one, which the note names",
            find_special_look_alikes(tokenizer),
        ),
        Finding(
            "longest",
            "the longest tokens; figure: length in bytes (kind char: in characters)",
            find_longest(tokenizer, num_listed),
        ),
        Finding(
            "twins",
            "the same but for case and a leading space; figure: how many; related: the others",
            find_twins(tokenizer),
        ),
    ]
    return TokenAudit(tokenizer.vocab_size, len(tokenizer.special_tokens), tuple(findings))


# Findings that need counts.


def count_token_uses(tokenizer: Tokenizer, word_counts: WordCounts) -> TokenUses:
    """Returns how often each token is in the encoded words, and how often it is merged into a longer one.

    A part of a word that becomes one token is merged just as if it were a word of its own: no merge crosses its bounds,
    and those within follow ranks, then positions, in either case. So a token is made in the same steps wherever it
    occurs, and its uses can be passed down to the two tokens that it is merged from, longest tokens first.

    Characters without a symbol count as `unk`.

    Raises:
        ValueError: As in `word_counts_to_arrays`, or a character has no symbol and there is no `unk` token.

    >>> tokenizer = Tokenizer.train(["hug pug hug"], num_merges=2)  # u+g is the id 256, h+ug is 257.
    >>> uses = count_token_uses(tokenizer, {"hug": 5, "pug": 2})
    >>> int(uses.final[256]), int(uses.intermediate[256])  # Final in `pug`, merged further in `hug`.
    (2, 5)
    """
    words, counts = word_counts_to_arrays(word_counts)
    encoded = tokenizer.encode_words(words)
    ids = encoded.values.to_numpy()
    lengths = np.diff(encoded.offsets.to_numpy())
    weights = np.repeat(counts, lengths)
    final = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(final, ids, weights)
    made = final.copy()
    if tokenizer.model.ignore_merges:  # A word that is one token was looked up, not made by merges.
        looked_up = np.repeat(lengths == 1, lengths)
        np.subtract.at(made, ids[looked_up], weights[looked_up])
    intermediate = np.zeros_like(final)
    sizes = np.array([len(token) for token in tokenizer.model.tokens])
    parts = find_last_merges(tokenizer.model)
    for id_ in np.lexsort((np.arange(sizes.size), -sizes)).tolist():
        uses = made[id_] + intermediate[id_]
        if uses and parts[id_, 0] >= 0:
            intermediate[parts[id_, 0]] += uses
            intermediate[parts[id_, 1]] += uses
    return TokenUses(final, intermediate)


def find_unused(tokenizer: Tokenizer, uses: TokenUses) -> tuple[AuditEntry, ...]:
    """Returns the tokens without final uses, by id; added tokens are left out, as they are in no word."""
    unused = _leave_out_added(tokenizer, np.flatnonzero(uses.final == 0))
    return _make_entries(tokenizer, unused, uses.intermediate)


def find_rare(tokenizer: Tokenizer, uses: TokenUses, below: int) -> tuple[AuditEntry, ...]:
    """Returns the tokens with final uses, but fewer than `below`, rarest first."""
    ids = np.flatnonzero((uses.final > 0) & (uses.final < below))
    rare = _leave_out_added(tokenizer, ids[np.argsort(uses.final[ids], kind="stable")])
    return _make_entries(tokenizer, rare, uses.final)


def find_mostly_intermediate(tokenizer: Tokenizer, uses: TokenUses, below: float) -> tuple[AuditEntry, ...]:
    """Returns the tokens whose share of final uses is less than `below`, smallest first, without base symbols."""
    share = uses.final_share
    ids = np.flatnonzero(share < below)
    base = set(tokenizer.alphabet.symbols)
    tokens = tokenizer.model.tokens
    chosen = _leave_out_added(tokenizer, ids[np.argsort(share[ids], kind="stable")])
    return _make_entries(tokenizer, [id_ for id_ in chosen if tokens[id_] not in base], share)


def find_least_counted(tokenizer: Tokenizer, id_counts: npt.ArrayLike, num_listed: int) -> tuple[AuditEntry, ...]:
    """Returns the tokens that are rarest in the training data, rarest first: `num_listed`, or all with a count of 0.

    A model has likely not learned them (Land and Bartolo, "Fishing for Magikarp", 2024).

    Raises:
        ValueError: `id_counts` is not one integer, 0 or more, for each id.
    """
    counts = np.asarray(id_counts)
    if counts.shape != (tokenizer.vocab_size,) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ValueError(
            f"the counts by id are {counts.dtype} of shape {counts.shape}; each of the {tokenizer.vocab_size} ids "
            "needs an integer, 0 or more"
        )
    order = np.argsort(counts, kind="stable")
    return _make_entries(tokenizer, order[: max(num_listed, int((counts == 0).sum()))].tolist(), counts)


# Findings that need the vocabulary alone.


def find_unreachable(tokenizer: Tokenizer) -> tuple[AuditEntry, ...]:
    """Returns the tokens that no text is encoded to, by id: those that the merges do not make of their own spelling.

    With `ignore_merges`, a token that is a whole word is looked up and so can be reached.
    """
    found = find_unreachable_ids(tokenizer.model)
    tokens = tokenizer.model.tokens
    if tokenizer.model.ignore_merges:
        found = {id_: made for id_, made in found.items() if not _is_whole_word(tokenizer, tokens[id_])}
    return tuple(
        AuditEntry(id_, escape_token(tokenizer, id_), related=tuple(part for part in made if part >= 0))
        for id_, made in found.items()
    )


def _is_whole_word(tokenizer: Tokenizer, token: bytes) -> bool:
    """Returns whether the pre-tokenizer makes exactly one word of a token's text."""
    try:
        text = token.removesuffix(MARKER).decode() if tokenizer.alphabet.kind == "char" else token.decode()
    except UnicodeDecodeError:
        return False
    return tokenizer.pre_tokenizer.split(text) == [text]


def find_not_utf8(tokenizer: Tokenizer) -> tuple[AuditEntry, ...]:
    """Returns the tokens of kind `byte` that are not valid UTF-8 by themselves, by id, single bytes among them."""
    tokens = tokenizer.model.tokens
    ids = [] if tokenizer.alphabet.kind == "char" else [id_ for id_, token in enumerate(tokens) if not _is_utf8(token)]
    return tuple(AuditEntry(id_, escape_token(tokenizer, id_), len(tokens[id_])) for id_ in ids)


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def find_special_look_alikes(tokenizer: Tokenizer) -> tuple[AuditEntry, ...]:
    """Returns the ordinary tokens that look like special ones, by id; the note names the special token.

    Case and surrounding white space are ignored. A token is found if it is the spelling of one of the tokenizer's own
    special tokens or of `KNOWN_SPECIAL_TOKENS`, if it has the form `<|…|>`, or if it is a part of such a spelling that
    holds a bracket or bar and is at least half as long.
    """
    known = [*tokenizer.special_tokens, *KNOWN_SPECIAL_TOKENS]
    spellings = {fold_case(spelling.strip()): spelling for spelling in reversed(known)}
    parts = {
        folded[start:stop]: spelling
        for folded, spelling in spellings.items()
        for start in range(len(folded))
        for stop in range(start + max(_MIN_PART_CHARACTERS, (len(folded) + 1) // 2), len(folded) + 1)
        if not _BRACKETS.isdisjoint(folded[start:stop])
    }
    found = []
    for id_ in _leave_out_added(tokenizer, range(tokenizer.vocab_size)):
        folded = _fold_case(tokenizer, id_).strip()
        if folded in spellings:
            found.append((id_, spellings[folded]))
        elif _BETWEEN_BARS.fullmatch(folded):
            found.append((id_, "<|…|>"))
        elif folded in parts:
            found.append((id_, f"a part of {parts[folded]}"))
    return tuple(AuditEntry(id_, escape_token(tokenizer, id_), note=note) for id_, note in found)


def find_longest(tokenizer: Tokenizer, num_listed: int) -> tuple[AuditEntry, ...]:
    """Returns the `num_listed` longest tokens, longest first."""
    tokens = tokenizer.model.tokens
    sizes = np.array([tokenizer.alphabet.measure_length(token) for token in tokens])
    chosen = _leave_out_added(tokenizer, np.argsort(-sizes, kind="stable"))
    return _make_entries(tokenizer, chosen[:num_listed], sizes)


def find_twins(tokenizer: Tokenizer) -> tuple[AuditEntry, ...]:
    """Returns the first token, by id, of each group of twins, with the ids of the others.

    Twins differ only in case and in one leading space; for kind `char`, in case and in the end-of-word marker.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for id_ in _leave_out_added(tokenizer, range(tokenizer.vocab_size)):
        folded = _fold_case(tokenizer, id_)
        groups[folded.removeprefix(" ") or folded].append(id_)
    return tuple(
        AuditEntry(ids[0], escape_token(tokenizer, ids[0]), len(ids), tuple(ids[1:]))
        for ids in groups.values()
        if len(ids) > 1
    )


def _fold_case(tokenizer: Tokenizer, id_: int) -> str:
    """Returns a token's text without differences of case and without the end-of-word marker."""
    token = tokenizer.model.tokens[id_]
    if tokenizer.alphabet.kind == "char" and token != MARKER:
        token = token.removesuffix(MARKER)
    return fold_case(token.decode(errors="backslashreplace"))


def _leave_out_added(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    """Returns ids in the order given, without those of added tokens and those that have no token."""
    added = {token.id for token in tokenizer.added_tokens}
    tokens = tokenizer.model.tokens
    return [id_ for id_ in map(int, ids) if id_ not in added and tokens[id_]]


def _make_entries(tokenizer: Tokenizer, ids: Iterable[int], figures: npt.NDArray[np.generic]) -> tuple[AuditEntry, ...]:
    """Returns the entries of ids, with the figure of each from an array by id."""
    return tuple(AuditEntry(id_, escape_token(tokenizer, id_), figures[id_].item()) for id_ in ids)
