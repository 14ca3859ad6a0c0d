"""What the jobs say about documents that they left out or changed."""

from collections.abc import Iterator, Mapping

from pipelines.running.console import console

REMARKS = {
    "blank_lines": "blank lines of JSON files were left out",
    "null_documents": "documents without text were left out",
    "empty_documents": "empty documents were left out",
    "quarantined_documents": "bad documents were left out; they are listed in _quarantine/",
    "duplicate_documents": "exact duplicates were left out",
    "skipped_documents": "documents that are not UTF-8 were left out",
    "replaced_documents": "documents that are not UTF-8 were repaired: their invalid bytes became U+FFFD",
    "surrogate_documents": "documents contained lone surrogates, which became U+FFFD",
    "split_documents": "documents were longer than the longest row and were split",
    "truncated_documents": "documents were longer than the longest row and were truncated",
    "dropped_documents": "documents were longer than the longest row and were dropped",
    "special_spellings": "special tokens were spelled out in texts; see shards.special_in_text",
    "unsampled_documents": "documents were left out because of their weight",
    "repeated_documents": "copies of documents were added because of their weight",
    "pruned_words": "different words occur less often than train.min_count and were left out",
    "pruned_occurrences": "occurrences of words were left out with them",
    "dropped_characters": "different characters are not in the alphabet, because of tokenizer.limit_alphabet",
    "dropped_character_occurrences": "occurrences of characters were left out with them",
    "texts_with_begin_token": "texts begin with the begin token that is added to them; see shards.repeated_ends",
    "texts_with_end_token": "texts end with the end token that is added to them; see shards.repeated_ends",
    "unknown_tokens": "characters or words are not in the vocabulary and became the unknown token",
}
"""What a summary says about a count that is not 0."""


def list_remarks(counts: Mapping[str, int]) -> Iterator[str]:
    """Yields a sentence without its full stop for each count that is not 0 and says what was left out or changed.

    >>> list(list_remarks({"documents": 5, "null_documents": 2}))
    ['2 documents without text were left out']
    """
    for name, remark in REMARKS.items():
        if counts.get(name):
            yield f"{counts[name]:,} {remark}"


def show_remarks(counts: Mapping[str, int]) -> None:
    """Prints what was left out or changed, one line for each count that is not 0."""
    for remark in list_remarks(counts):
        console.print(f"  {remark}")
