"""Which tokens of a vocabulary are worth a look: not used, not reachable, half a character, a step to others, twins."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.formats.ranks import find_last_merges, find_unreachable_ids
from bpe_core.kernels import Int64s
from bpe_core.measuring.token_display import escape_token
from bpe_core.merging.alphabet import MARKER, word_counts_to_arrays
from bpe_core.tokenizer import Tokenizer

KNOWN_SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
    *("<|padding|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|user|>", "<|assistant|>", "<|system|>"),
    *("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<sep>", "<cls>"),
    *("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]", "[INST]", "[/INST]", "<<SYS>>", "</w>"),
    *("endoftext", "im_start", "im_end"),
)
"""Spellings that common tokenizers and chat formats give control tokens, beside the tokenizer's own."""

_BETWEEN_BARS = re.compile(r"<\|[^<>|\s]+\|>")
_BRACKETS = frozenset("<>|[]")
_LEAST_PIECE = 4  # characters
_RELATED_SHOWN = 8


@dataclass(frozen=True, eq=False)
class TokenUses:
    """How often tokens stand in a text, by id.

    Attributes:
        final: int64, how often the id is given out.
        intermediate: int64, how often the token is made on the way and merged further, so that it is not given out.
    """

    final: Int64s
    intermediate: Int64s

    @property
    def final_share(self) -> npt.NDArray[np.float64]:
        """Final uses among all, by id; 1 where there are none at all (after LiteToken, 2026)."""
        uses = self.final + self.intermediate
        return np.where(uses > 0, self.final / np.maximum(uses, 1), 1.0)


@dataclass(frozen=True)
class Entry:
    """A token that was found.

    Attributes:
        token: as people read it; bytes that are not UTF-8, and what cannot be printed, as escapes.
        figure: what it was found by; the finding says what that is. None where there is none.
        related: other ids: what the merges make of it, or its twins.
        note: a spelling that it looks like, or empty.
    """

    id: int
    token: str
    figure: float | None = None
    related: tuple[int, ...] = ()
    note: str = ""

    def describe(self, tokenizer: Tokenizer) -> str:
        """Returns the entry on one line, with the first of the related tokens spelled out."""
        parts = [f"{self.id:>7} {self.token!r}"]
        if self.figure is not None:
            parts.append(f"{self.figure:.3f}" if isinstance(self.figure, float) else f"{self.figure:,}")
        if self.related:
            parts.append(" ".join(repr(escape_token(tokenizer, id_)) for id_ in self.related[:_RELATED_SHOWN]))
        return "  ".join([*parts, self.note] if self.note else parts)


@dataclass(frozen=True)
class Finding:
    """Tokens found for one reason, with what `Entry.figure` is."""

    name: str
    meaning: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class TokenAudit:
    """What was found, and out of how many ids."""

    vocab_size: int
    num_special: int
    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        return next(finding for finding in self.findings if finding.name == name)

    def rows(self) -> Iterator[tuple[str, int, str, float | None, str, str]]:
        """Yields finding, id, token, figure, related ids with blanks between, and note, for every entry."""
        for finding in self.findings:
            for entry in finding.entries:
                yield finding.name, entry.id, entry.token, entry.figure, " ".join(map(str, entry.related)), entry.note


def audit_tokens(
    tokenizer: Tokenizer,
    word_counts: pa.Table | dict[str, int] | dict[bytes, int] | None = None,
    id_counts: npt.ArrayLike | None = None,
    *,
    rare_below: int = 10,
    intermediate_below: float = 0.1,
    num_listed: int = 100,
) -> TokenAudit:
    """Returns all findings; those on uses need word counts, the one on training needs counts by id.

    Args:
        word_counts: of words cut as the tokenizer cuts them, a table `word`, `count` or a dict.
        id_counts: how often each id stands in the training data, as `vocab_size` whole numbers.
        rare_below: final uses under which a token is rarely used.
        intermediate_below: share of final uses under which a token is mostly a step to others.
        num_listed: how many of the longest, and of the likely under-trained, are listed.

    Raises:
        ValueError: counts of another shape; see `word_counts_to_arrays` and `find_least_counted`.
    """
    findings: list[Finding] = []
    if word_counts is not None:
        uses = count_token_uses(tokenizer, word_counts)
        findings += [
            Finding("unused", "never given out; figure: intermediate uses", find_unused(tokenizer, uses)),
            Finding(
                "rare", f"given out under {rare_below} times; figure: uses", find_rare(tokenizer, uses, rare_below)
            ),
            Finding(
                "intermediate",
                f"mostly a step to longer tokens; figure: final / (final + intermediate), under {intermediate_below}",
                find_mostly_intermediate(tokenizer, uses, intermediate_below),
            ),
        ]
    if id_counts is not None:
        under = find_least_counted(tokenizer, id_counts, num_listed)
        findings.append(Finding("under-trained", "fewest in the training data; figure: how often", under))
    findings += [
        Finding(
            "unreachable", "no text gives this id; related: what the merges make of it", find_unreachable(tokenizer)
        ),
        Finding("not-utf8", "not whole characters alone; figure: bytes", find_not_utf8(tokenizer)),
        Finding(
            "special-look-alike", "reads like a special token, or a piece of one", find_special_look_alikes(tokenizer)
        ),
        Finding("longest", "figure: bytes, or characters of kind char", find_longest(tokenizer, num_listed)),
        Finding("twins", "alike up to case and a leading blank; related: the others", find_twins(tokenizer)),
    ]
    return TokenAudit(tokenizer.vocab_size, len(tokenizer.special_tokens), tuple(findings))


# Uses.


def count_token_uses(tokenizer: Tokenizer, word_counts: pa.Table | dict[str, int] | dict[bytes, int]) -> TokenUses:
    """Returns how often each token is given out and how often it is merged further, over all words.

    What becomes one token in a word is merged just as if it stood alone: no merge crosses its bounds, and those within
    go by rank and then from the left in either case. So a token's steps are the same wherever it stands, and uses go
    down from each token to the two that it is merged from. Characters without a symbol count as `unk`.

    Raises:
        ValueError: as in `word_counts_to_arrays`; a character without a symbol, when there is no `unk` token.
    """
    words, counts = word_counts_to_arrays(word_counts)
    encoded = tokenizer.encode_words(words)
    ids = encoded.values.to_numpy()
    lengths = np.diff(encoded.offsets.to_numpy())
    weights = np.repeat(counts, lengths)
    final = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(final, ids, weights)
    made = final.copy()
    if tokenizer.model.ignore_merges:  # A word that is one token was looked up, not merged.
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


def find_unused(tokenizer: Tokenizer, uses: TokenUses) -> tuple[Entry, ...]:
    """Returns the tokens that are never given out, by id; added tokens, which stand in no word, are left out."""
    return _by_figure(tokenizer, _in_words(tokenizer, np.flatnonzero(uses.final == 0)), uses.intermediate)


def find_rare(tokenizer: Tokenizer, uses: TokenUses, below: int) -> tuple[Entry, ...]:
    """Returns the tokens that are given out, but under `below` times, the rarest first."""
    ids = np.flatnonzero((uses.final > 0) & (uses.final < below))
    return _by_figure(tokenizer, _in_words(tokenizer, ids[np.argsort(uses.final[ids], kind="stable")]), uses.final)


def find_mostly_intermediate(tokenizer: Tokenizer, uses: TokenUses, below: float) -> tuple[Entry, ...]:
    """Returns the tokens of which fewer than the share `below` of uses are final, the least first; no base symbols."""
    share = uses.final_share
    ids = np.flatnonzero(share < below)
    base = set(tokenizer.alphabet.symbols)
    tokens = tokenizer.model.tokens
    chosen = _in_words(tokenizer, ids[np.argsort(share[ids], kind="stable")])
    return _by_figure(tokenizer, [id_ for id_ in chosen if tokens[id_] not in base], share)


def find_least_counted(tokenizer: Tokenizer, id_counts: npt.ArrayLike, num_listed: int) -> tuple[Entry, ...]:
    """Returns the tokens that stand in training data least often, the least first: all without any, and up to
    `num_listed`. A model has likely not learned them.

    Raises:
        ValueError: `id_counts` are not a whole number, 0 or more, for each id.
    """
    counts = np.asarray(id_counts)
    if counts.shape != (tokenizer.vocab_size,) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ValueError(
            f"counts by id are {counts.dtype} of shape {counts.shape}; there are {tokenizer.vocab_size} ids, and each "
            "needs a whole number, 0 or more"
        )
    order = np.argsort(counts, kind="stable")
    return _by_figure(tokenizer, order[: max(num_listed, int((counts == 0).sum()))].tolist(), counts)


# The vocabulary alone.


def find_unreachable(tokenizer: Tokenizer) -> tuple[Entry, ...]:
    """Returns the tokens that no text gives, by id.

    They are those that the merges do not make of their own spelling. With `ignore_merges`, a token that is a word of
    its own is reachable.
    """
    found = find_unreachable_ids(tokenizer.model)
    tokens = tokenizer.model.tokens
    if tokenizer.model.ignore_merges:
        found = {id_: made for id_, made in found.items() if not _is_word(tokenizer, tokens[id_])}
    return tuple(
        Entry(id_, escape_token(tokenizer, id_), related=tuple(part for part in made if part >= 0))
        for id_, made in found.items()
    )


def _is_word(tokenizer: Tokenizer, token: bytes) -> bool:
    try:
        text = token.removesuffix(MARKER).decode() if tokenizer.alphabet.kind == "char" else token.decode()
    except UnicodeDecodeError:
        return False
    return tokenizer.pre_tokenizer.split(text) == [text]


def find_not_utf8(tokenizer: Tokenizer) -> tuple[Entry, ...]:
    """Returns the tokens of kind `byte` that are not whole characters, by id; single bytes are among them."""
    tokens = tokenizer.model.tokens
    ids = [] if tokenizer.alphabet.kind == "char" else [id_ for id_, token in enumerate(tokens) if not _is_utf8(token)]
    return tuple(Entry(id_, escape_token(tokenizer, id_), len(tokens[id_])) for id_ in ids)


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def find_special_look_alikes(tokenizer: Tokenizer) -> tuple[Entry, ...]:
    """Returns the ordinary tokens that read like special ones, by id; the note says like which.

    Up to case and blanks around it, the token is the spelling of one of the tokenizer's own special tokens or of
    `KNOWN_SPECIAL_TOKENS`, or is written `<|…|>`, or is half of such a spelling or more, with a bracket or bar.
    """
    spelled = [*tokenizer.special_tokens, *KNOWN_SPECIAL_TOKENS]
    spellings = {spelling.strip().casefold(): spelling for spelling in reversed(spelled)}
    pieces = {
        folded[start:stop]: spelling
        for folded, spelling in spellings.items()
        for start in range(len(folded))
        for stop in range(start + max(_LEAST_PIECE, (len(folded) + 1) // 2), len(folded) + 1)
        if not _BRACKETS.isdisjoint(folded[start:stop])
    }
    found = []
    for id_ in _in_words(tokenizer, range(tokenizer.vocab_size)):
        folded = _folded(tokenizer, id_).strip()
        if folded in spellings:
            found.append((id_, spellings[folded]))
        elif _BETWEEN_BARS.fullmatch(folded):
            found.append((id_, "<|…|>"))
        elif folded in pieces:
            found.append((id_, f"a piece of {pieces[folded]}"))
    return tuple(Entry(id_, escape_token(tokenizer, id_), note=note) for id_, note in found)


def find_longest(tokenizer: Tokenizer, num_listed: int) -> tuple[Entry, ...]:
    """Returns the longest tokens, the longest first."""
    tokens = tokenizer.model.tokens
    sizes = np.array([tokenizer.alphabet.measure_length(token) for token in tokens])
    chosen = _in_words(tokenizer, np.argsort(-sizes, kind="stable"))
    return _by_figure(tokenizer, chosen[:num_listed], sizes)


def find_twins(tokenizer: Tokenizer) -> tuple[Entry, ...]:
    """Returns the first token, by id, of each group that is alike up to case and one leading blank (kind `char`: the
    end-of-word marker), with the others' ids."""
    groups: dict[str, list[int]] = defaultdict(list)
    for id_ in _in_words(tokenizer, range(tokenizer.vocab_size)):
        folded = _folded(tokenizer, id_)
        groups[folded.removeprefix(" ") or folded].append(id_)
    return tuple(
        Entry(ids[0], escape_token(tokenizer, ids[0]), len(ids), tuple(ids[1:]))
        for ids in groups.values()
        if len(ids) > 1
    )


def _folded(tokenizer: Tokenizer, id_: int) -> str:
    token = tokenizer.model.tokens[id_]
    if tokenizer.alphabet.kind == "char" and token != MARKER:
        token = token.removesuffix(MARKER)
    return token.decode(errors="backslashreplace").casefold()


def _in_words(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    """Returns the ids of those that words may hold: no added tokens, no ids without a use."""
    added = {token.id for token in tokenizer.added_tokens}
    tokens = tokenizer.model.tokens
    return [id_ for id_ in map(int, ids) if id_ not in added and tokens[id_]]


def _by_figure(tokenizer: Tokenizer, ids: Iterable[int], figures: npt.NDArray[np.generic]) -> tuple[Entry, ...]:
    return tuple(Entry(id_, escape_token(tokenizer, id_), figures[id_].item()) for id_ in ids)
