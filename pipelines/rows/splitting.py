"""Splits documents that are longer than a row, and puts the begin and end ids around each document."""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bpe_core.kernels import Int32s, Int64s, copy_items, kernel

OnOverflow = Literal["split", "truncate", "drop"]


class SegmentSpans(NamedTuple):
    """Where each segment lies in its document, in the documents' order; all arrays are int64, one value per segment.

    Attributes:
        document: the index of the segment's document.
        start: the segment's first token, counted from the start of the document.
        stop: one past the segment's last token.
        part: the segment's number in its document, from 0.
    """

    document: Int64s
    start: Int64s
    stop: Int64s
    part: Int64s


def split_documents(
    lengths: npt.ArrayLike, max_length: int, on_overflow: OnOverflow = "split", overlap: int = 0
) -> SegmentSpans:
    """Returns the segments of documents that have `lengths` tokens; an empty document has no segment.

    A document longer than `max_length` tokens gives several segments, each but the first of which repeats `overlap`
    tokens (`split`), only its first segment (`truncate`), or nothing (`drop`).

    >>> spans = split_documents([3, 10], max_length=4)
    >>> list(zip(spans.document.tolist(), spans.start.tolist(), spans.stop.tolist()))
    [(0, 0, 3), (1, 0, 4), (1, 4, 8), (1, 8, 10)]
    >>> spans = split_documents([10], max_length=4, overlap=1)
    >>> list(zip(spans.start.tolist(), spans.stop.tolist()))
    [(0, 4), (3, 7), (6, 10)]
    """
    sizes = np.asarray(lengths, np.int64)
    excess = np.maximum(sizes - max_length, 0)
    step = max_length - overlap
    if on_overflow == "split":
        num_parts = np.where(sizes > 0, 1 + (excess + step - 1) // step, 0)
    else:
        num_parts = np.where((sizes > 0) & ((excess == 0) | (on_overflow == "truncate")), 1, 0)
    document = np.repeat(np.arange(sizes.size), num_parts)
    first_segment = np.cumsum(num_parts) - num_parts
    part = np.arange(document.size) - first_segment[document]
    start = part * step
    return SegmentSpans(document, start, np.minimum(start + max_length, sizes[document]), part)


def add_begin_and_end_ids(ids: pa.ListArray, begin: int | None, end: int | None) -> tuple[Int32s, Int64s]:
    """Puts the begin and end ids around each document; an empty document stays empty.

    Args:
        ids: the ids of each document, `list<int32>`.
        begin: the id before each document, or None for no such id.
        end: the id after each document, or None for no such id.

    Returns:
        The ids of all documents in one array, and where each document starts in it. The starts have one value more
        than there are documents: the last is the size of the array.

    >>> values, starts = add_begin_and_end_ids(pa.array([[5, 6], [], [7]], pa.list_(pa.int32())), begin=None, end=0)
    >>> values.tolist(), starts.tolist()
    ([5, 6, 0, 7, 0], [0, 3, 3, 5])
    """
    offsets = np.asarray(ids.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    sizes[sizes > 0] += (begin is not None) + (end is not None)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    result = np.empty(starts[-1], np.int32)
    _copy_with_ends(np.asarray(ids.values), offsets, -1 if begin is None else begin, -1 if end is None else end, result)
    return result, starts


class RepeatedEnds(NamedTuple):
    """Where documents have their begin or end id twice; both arrays are bool, with one value per document.

    Attributes:
        begin: whether the first two ids of the document are the begin id.
        end: whether its last two ids are the end id.
    """

    begin: npt.NDArray[np.bool_]
    end: npt.NDArray[np.bool_]


def find_repeated_ends(ids: Int32s, starts: Int64s, begin: int | None, end: int | None) -> RepeatedEnds:
    """Returns which documents had begun with the begin id, or ended with the end id, before these ids were added.

    A document that is only the token which is both the begin and the end token counts as beginning with it.

    Args:
        ids: the ids of all documents, from `add_begin_and_end_ids`.
        starts: where each document starts, from there too.
        begin: the id that was added before each document, or None.
        end: the id that was added after each document, or None.

    >>> ids, starts = add_begin_and_end_ids(pa.array([[1, 5], [5, 2], [5]], pa.list_(pa.int32())), begin=1, end=2)
    >>> repeated = find_repeated_ends(ids, starts, begin=1, end=2)
    >>> repeated.begin.tolist(), repeated.end.tolist()
    ([True, False, False], [False, True, False])
    """
    first, stop = starts[:-1], starts[1:]
    has_ids = stop > first
    num_added = (begin is not None) + (end is not None)
    found = []
    for id_, place in ((begin, first + 1), (end, stop - 2)):
        repeats = np.zeros(first.size, np.bool_)
        if id_ is not None:
            repeats[has_ids] = ids[place[has_ids]] == id_
        found.append(repeats)
    if begin == end:
        found[1] &= ~(found[0] & (stop - first == num_added + 1))
    return RepeatedEnds(*found)


def remove_repeated_ends(ids: Int32s, starts: Int64s, repeated: RepeatedEnds) -> tuple[Int32s, Int64s]:
    """Returns ids and starts without one of the two begin ids, or end ids, of each such document.

    >>> ids, starts = add_begin_and_end_ids(pa.array([[1, 5], [5, 2], [5]], pa.list_(pa.int32())), begin=1, end=2)
    >>> ids, starts = remove_repeated_ends(ids, starts, find_repeated_ends(ids, starts, begin=1, end=2))
    >>> ids.tolist(), starts.tolist()
    ([1, 5, 2, 1, 5, 2, 1, 5, 2], [0, 3, 6, 9])
    """
    begins, ends = starts[:-1][repeated.begin], starts[1:][repeated.end] - 1
    sizes = np.diff(starts) - repeated.begin - repeated.end
    return np.delete(ids, np.concatenate([begins, ends])), np.concatenate([[0], np.cumsum(sizes)])


@kernel
def _copy_with_ends(values: Int32s, offsets: Int64s, begin: int, end: int, result: Int32s) -> None:
    """Copies documents into `result`, with the begin and end ids around each; a negative id is left out."""
    at = 0
    for document in range(offsets.size - 1):
        if offsets[document + 1] == offsets[document]:
            continue
        if begin >= 0:
            result[at] = begin
            at += 1
        copy_items(values, offsets[document], offsets[document + 1], result, at)
        at += offsets[document + 1] - offsets[document]
        if end >= 0:
            result[at] = end
            at += 1
