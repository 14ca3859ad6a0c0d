"""A sample of the documents in shards, whose rows are collected to be compared with the documents encoded again."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bpe_core.kernels import Int64s
from pipelines.checking.row_checks import Bools
from pipelines.reading.random_order import draw

DocumentPlace = tuple[str, int]
"""A file of the corpus, and a row of it."""


@dataclass
class DocumentSample:
    """Documents to encode again. Each is drawn by file, row and seed, so all rows of a drawn document are found.

    Attributes:
        limit: documents whose random number (64 bits) is below this are in the sample.
        seed: decides which documents are in the sample.
        may_repeat: whether a document may occur several times, by the weight of its source.
        parts: for each document found so far, the ids of each of its segments, by the segment's number.
        conflicting: documents of which one segment was found twice; or, if documents may repeat, with different ids.
    """

    limit: int
    seed: int
    may_repeat: bool
    parts: dict[DocumentPlace, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    conflicting: set[DocumentPlace] = field(default_factory=set)

    @classmethod
    def of_output(cls, manifest: Mapping[str, Any], size: int, seed: int) -> "DocumentSample":
        """Returns an empty sample that will have about `size` of the documents in the shards."""
        limit = min(1 << 64, (size << 64) // max(1, manifest["counts"].get("documents_in_rows", 0)))
        return cls(limit, seed, bool(manifest["counts"].get("repeated_documents")))

    def select(self, paths: Sequence[str], path_indexes: npt.NDArray[Any], rows: Int64s) -> Bools:
        """Returns which documents are in the sample.

        Args:
            paths: the files of the documents, each once.
            path_indexes: for each document, the index of its file in `paths`.
            rows: for each document, its row in the file.
        """
        if self.limit >= 1 << 64:
            return np.ones(rows.size, bool)
        drawn = np.zeros(rows.size, np.uint64)
        for index, path in enumerate(paths):
            drawn[path_indexes == index] = draw(self.seed, "verify", path, rows[path_indexes == index])
        return drawn < np.uint64(self.limit)

    def add(self, document: DocumentPlace, part: int, ids: list[int]) -> None:
        """Adds a segment of a document."""
        if part in self.parts[document] and not (self.may_repeat and self.parts[document][part] == ids):
            self.conflicting.add(document)
        self.parts[document][part] = ids
