"""A finished output of job 2, as its manifest describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipelines.rows.columns import TOKEN_COLUMNS
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.tokenizing.bucket_choice import use_chosen_buckets

MANIFEST_FIELDS = ("tokenizer", "settings", "vocabulary", "inputs", "counts", "buckets", "shards")
"""The fields that the checks need."""


@dataclass(frozen=True)
class FinishedOutput:
    """A finished output of job 2.

    Attributes:
        folder: the output folder.
        manifest: its manifest, which has all of `MANIFEST_FIELDS`.
    """

    folder: str
    manifest: Mapping[str, Any]

    @cached_property
    def settings(self) -> Shards:
        """The settings of the shards."""
        given = dict(self.manifest["settings"]["shards"])
        if given.get("buckets") or given.get("row_length"):
            given.pop("bucket_lengths", None)  # Recorded only as the default, and refused beside the others.
        settings = Shards(**given, output=self.folder)
        return use_chosen_buckets(settings, self.manifest["bucket_choice"]) if settings.buckets else settings

    @property
    def vocab_size(self) -> int:
        """The number of ids of the tokenizer."""
        return int(self.manifest["vocabulary"]["size"])

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return int(self.manifest["vocabulary"]["pad_id"])

    @property
    def absent_columns(self) -> list[str]:
        """The token columns that shards with these settings do not have."""
        return [column.name for column in TOKEN_COLUMNS if not column.is_written(self.settings)]

    @property
    def shards(self) -> list[dict[str, Any]]:
        """The manifest's entries for the shards."""
        return list(self.manifest["shards"])

    def shard_path(self, shard: Mapping[str, Any]) -> str:
        """Returns the path of a shard."""
        return files.join(self.folder, *shard["path"].split("/"))

    def find_smaller_bucket(self, bucket: int) -> int:
        """Returns the next smaller bucket; 0 if there is none, or if rows are packed."""
        if self.settings.layout == "packed":
            return 0
        return max((length for length in self.settings.bucket_lengths if length < bucket), default=0)
