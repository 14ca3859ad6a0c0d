"""The settings of one run of a job: the sections of a project that the job needs, checked together and made once."""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.report import Report
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.sweep import Sweep
from pipelines.settings.tokenizer import LEARNING_SETTINGS, TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage import files
from pipelines.storage.output_files import SWEEP_TOKENIZER_FOLDER


@dataclass(frozen=True)
class TrainingJob:
    """The settings of job 1, which trains a tokenizer.

    Attributes:
        outputs: setting -> folder of every output of the project; no file of the corpus may be in one of them.
        notes: sentences to show, about settings that have no effect.
    """

    corpus: Corpus
    tokenizer: TokenizerSettings
    train: Train
    run: Run
    outputs: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, project: Project) -> Self:
        """Returns the settings of job 1.

        Raises:
            ValueError: a section is missing, two outputs are the same folder, or `train.start_from` names a tokenizer
                that already decides one of the given settings.
        """
        _check_outputs(project)
        if project.tokenizer is None or project.train is None:
            missing = "tokenizer" if project.tokenizer is None else "train"
            raise ValueError(f"the section {missing!r} is missing; training needs tokenizer: and train:")
        taken = sorted(project.tokenizer.model_fields_set - LEARNING_SETTINGS)
        if project.train.start_from is not None and taken:
            raise ValueError(
                f"tokenizer.{taken[0]} is given, and train.start_from names a tokenizer that has its own; remove one "
                f"of the two. With start_from there may be {', '.join(sorted(LEARNING_SETTINGS))}"
            )
        notes = []
        if project.train.from_counts is not None:
            notes.append(
                f"training from the word counts in {project.train.from_counts}: the corpus is not read, so corpus.* "
                "and train.num_partitions have no effect"
            )
        return cls(project.corpus, project.tokenizer, project.train, project.run, project.outputs, tuple(notes))

    @property
    def output(self) -> str:
        """The folder of the tokenizer."""
        return self.train.output

    @property
    def worker_paths(self) -> list[str]:
        """The paths that workers read or write."""
        return [*self.corpus.files, self.train.output]


@dataclass(frozen=True)
class TokenizingJob:
    """The settings of job 2, which writes training shards.

    Attributes:
        shards: with `tokenizer` set; it is `train.output` if the project names no other.
        outputs: setting -> folder of every output of the project; no file of the corpus may be in one of them.
        notes: sentences to show, about settings that have no effect.
    """

    corpus: Corpus
    shards: Shards
    run: Run
    outputs: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, project: Project) -> Self:
        """Returns the settings of job 2.

        Raises:
            ValueError: the section `shards` or the tokenizer is missing, two outputs are the same folder, or the
                section `tokenizer` has no effect.
        """
        _check_outputs(project)
        shards = project.shards
        if shards is None:
            raise ValueError("the section 'shards' is missing; tokenizing needs at least shards.output")
        if shards.tokenizer is None:
            if project.train is None:
                raise ValueError("shards.tokenizer is missing: name a tokenizer's folder or file")
            shards = shards.model_copy(update={"tokenizer": project.train.output})
        notes = []
        if "bucket_lengths" in shards.model_fields_set and shards.layout == "packed" and len(shards.bucket_lengths) > 1:
            notes.append(
                f"packed rows have one length: {shards.longest_row}, the longest of shards.bucket_lengths "
                f"{list(shards.bucket_lengths)}; the others have no effect"
            )
        return cls(
            project.corpus, shards, project.run, project.outputs, (*notes, *_explain_foreign_tokenizer(project, shards))
        )

    @property
    def output(self) -> str:
        """The folder of the shards."""
        return self.shards.output

    @property
    def worker_paths(self) -> list[str]:
        """The paths that workers read or write."""
        return [*self.corpus.files, *(path for path in (self.shards.tokenizer, self.shards.output) if path)]


@dataclass(frozen=True)
class SweepJob:
    """The settings of a sweep over vocabulary sizes.

    Attributes:
        training: trains the largest size, into a folder inside `sweep.output`.
        outputs: setting -> folder of every output of the project; no file of the corpus may be in one of them.
    """

    corpus: Corpus
    sweep: Sweep
    training: TrainingJob
    outputs: Mapping[str, str]

    @classmethod
    def of(cls, project: Project) -> Self:
        """Returns the settings of a sweep.

        Raises:
            ValueError: a section is missing, a size is too small for the bytes and special tokens, or the settings do
                not allow training.
        """
        tokenizer, sweep = project.tokenizer, project.sweep
        if tokenizer is None or sweep is None:
            missing = "tokenizer" if tokenizer is None else "sweep"
            raise ValueError(f"the section {missing!r} is missing; a sweep needs tokenizer: and sweep:")
        given, means = ("num_merges", "num_merges") if sweep.num_merges else ("vocab_sizes", "vocab_size")
        try:
            tokenizer.resize(**{means: sweep.sizes[0]})  # Otherwise the smallest size would fail after training.
            largest = tokenizer.resize(**{means: sweep.sizes[-1]})
        except ValueError as error:
            raise ValueError(f"sweep.{given}: {error}") from error
        output = files.join(sweep.output, SWEEP_TOKENIZER_FOLDER)
        train = project.train.model_copy(update={"output": output}) if project.train else Train(output=output)
        training = TrainingJob.of(project.model_copy(update={"tokenizer": largest, "train": train}))
        return cls(project.corpus, sweep, training, project.outputs)

    @property
    def output(self) -> str:
        """The folder of the results."""
        return self.sweep.output

    @property
    def worker_paths(self) -> list[str]:
        """The paths that workers read or write."""
        return list(self.corpus.files)


@dataclass(frozen=True)
class ReportJob:
    """The settings of a report on a tokenizer.

    Attributes:
        report: with `tokenizer` set; it is `train.output` if the project names no other.
        train: the section of job 1, if the project has one.
        shards: the section of job 2, if the project has one.
    """

    corpus: Corpus
    report: Report
    train: Train | None
    shards: Shards | None

    @classmethod
    def of(cls, project: Project) -> Self:
        """Returns the settings of a report; raises ValueError if the section `report` or the tokenizer is missing."""
        report = project.report
        if report is None:
            raise ValueError("the section 'report' is missing; a report needs at least report.output")
        if report.tokenizer is None:
            if project.train is None:
                raise ValueError("report.tokenizer is missing: name a tokenizer's folder or tokenizer.json")
            report = report.model_copy(update={"tokenizer": project.train.output})
        return cls(project.corpus, report, project.train, project.shards)

    @property
    def output(self) -> str:
        """The folder of the report."""
        return self.report.output

    @property
    def worker_paths(self) -> list[str]:
        """The paths that workers read or write."""
        return list(self.corpus.files)


def _explain_foreign_tokenizer(project: Project, shards: Shards) -> list[str]:
    """Returns a note if `shards.tokenizer` names a tokenizer to which the section `tokenizer` does not apply.

    Raises:
        ValueError: the section `tokenizer` then has no effect at all, because the project trains no tokenizer.
    """
    if project.tokenizer is None or shards.tokenizer is None:
        return []
    trained, named = project.train and os.path.normpath(project.train.output), os.path.normpath(shards.tokenizer)
    if trained and (named == trained or named.startswith(f"{trained}{os.sep}")):
        return []
    given = ", ".join(f"tokenizer.{name}" for name in sorted(project.tokenizer.model_fields_set))
    remedy = (
        "If the tokenizer's files do not contain its pattern, normalization and special tokens, use shards.pattern, "
        "shards.unicode and shards.special_tokens"
    )
    if project.train is None and project.sweep is None:
        raise ValueError(
            f"{given}: no effect, because shards.tokenizer names {shards.tokenizer}, and the project has neither a "
            f"section train nor a section sweep. Remove the section tokenizer. {remedy}"
        )
    return [f"shards.tokenizer names {shards.tokenizer}, so {given} do not apply to the shards. {remedy}"]


def _check_outputs(project: Project) -> None:
    """Raises ValueError if two outputs of a project are the same folder."""
    for (name, folder), (other, same) in itertools.combinations(project.outputs.items(), 2):
        if os.path.normpath(folder) == os.path.normpath(same):
            raise ValueError(f"{name} and {other} are both {folder!r}; give each a folder of its own")
