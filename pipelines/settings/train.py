"""The section `train`: where job 1 writes the tokenizer, and how it learns it."""

from pydantic import Field

from pipelines.settings.section import OutputFolder, Section
from pipelines.storage import files
from pipelines.storage.output_files import WORD_COUNTS_FOLDER


class Train(Section):
    """Job 1: where to write the tokenizer, and how to learn it."""

    output: OutputFolder = Field(description="the tokenizer's folder")
    from_counts: str | None = Field(
        None, description="a folder of word counts to train from, instead of reading the corpus"
    )
    start_from: str | None = Field(
        None, description="a tokenizer of kind byte to continue from: it keeps its ids, and vocab_size includes them"
    )
    min_count: int = Field(1, ge=1, description="ignore words that occur less often than this when learning merges")
    num_partitions: int = Field(16, ge=1, le=10_000, description="how many files to keep the word counts in")
    checkpoint_seconds: float = Field(
        30, gt=0, description="seconds between two checkpoints of the merges learned so far"
    )

    @property
    def kept_counts(self) -> str:
        """The folder that the word counts of the corpus are kept in."""
        return files.join(self.output, WORD_COUNTS_FOLDER)

    @property
    def counts_folder(self) -> str:
        """The folder of the word counts to train from."""
        return self.from_counts or self.kept_counts
