"""The section `train`: where job 1 writes the tokenizer, and how it learns it."""

from pydantic import Field

from pipelines.settings.section import OutputFolder, Section
from pipelines.storage import files
from pipelines.storage.output_files import WORD_COUNTS_FOLDER


class Train(Section):
    """Job 1: where the tokenizer goes, and how it is learned."""

    output: OutputFolder = Field(description="the tokenizer's folder")
    from_counts: str | None = Field(None, description="a folder of word counts to train from; the corpus is not read")
    start_from: str | None = Field(
        None, description="a tokenizer of kind byte to go on from: its ids stay, vocab_size counts them too"
    )
    min_count: int = Field(1, ge=1, description="words that occur less often are left out of the merge loop")
    num_partitions: int = Field(16, ge=1, le=10_000, description="files that the word counts are kept in")
    checkpoint_seconds: float = Field(30, gt=0, description="how often the merges so far are kept")

    @property
    def kept_counts(self) -> str:
        """The folder that the word counts of the corpus are kept in."""
        return files.join(self.output, WORD_COUNTS_FOLDER)

    @property
    def counts_folder(self) -> str:
        """The folder of the word counts to train from."""
        return self.from_counts or self.kept_counts
