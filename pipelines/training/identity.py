"""The identity of job 1's output: the corpus and settings that it depends on, recorded in manifests and compared."""

from collections.abc import Mapping, Sequence
from typing import Any

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines.errors import locate_errors
from pipelines.reading.fingerprints import compute_sha256
from pipelines.reading.source_files import SourceFile
from pipelines.settings.jobs import TrainingJob
from pipelines.storage import files
from pipelines.storage.manifest import list_differences, read_json
from pipelines.storage.output_files import MANIFEST
from pipelines.training.word_counts import find_word_counts

_SETTINGS_NOT_IN_IDENTITY = ("output", "checkpoint_seconds", "from_counts", "start_from")
_MAX_SHOWN_CHANGES = 4


def describe_training_settings(job: TrainingJob) -> dict[str, Any]:
    """Returns the settings that the output depends on: not where it is written, nor how the job runs."""
    train = job.train.model_dump(mode="json", exclude=set(_SETTINGS_NOT_IN_IDENTITY))
    return {"tokenizer": job.tokenizer.model_dump(mode="json"), "train": train, "corpus": job.corpus.identity}


def describe_pre_tokenizer(pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    """Returns what decides how text is split into words, as JSON content."""
    return {
        "pattern": list(pre_tokenizer.expressions),
        "keep_gaps": pre_tokenizer.keep_gaps,
        "unicode": pre_tokenizer.unicode,
        "lowercase": pre_tokenizer.lowercase,
        **({"add_prefix_space": True} if pre_tokenizer.add_prefix_space else {}),
    }


def describe_inputs(sources: Sequence[SourceFile]) -> dict[str, Any]:
    """Returns path -> size and fingerprint of source files, as JSON content."""
    return {source.path: {"bytes": source.num_bytes, "fingerprint": source.fingerprint} for source in sources}


def describe_given_counts(folder: str, pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    """Returns path -> size and fingerprint of the word counts that `train.from_counts` names, as JSON content.

    Raises:
        ValueError: their words were split by another pre-tokenizer.
    """
    manifest = read_json(files.join(folder, MANIFEST)) or {}
    expected = describe_pre_tokenizer(pre_tokenizer)
    if manifest.get("words", expected) != expected:
        changed = "; ".join(list_differences(manifest["words"], expected))
        raise ValueError(
            f"{folder} holds counts of words that were split differently ({changed}); count the corpus again"
        )
    return {
        stored.path: {"bytes": stored.num_bytes, "fingerprint": _hash_file(stored.path)}
        for stored in find_word_counts(folder)
    }


def _hash_file(path: str) -> str:
    """Returns the SHA-256 of a whole file, because other counts of the same words often have the same size."""
    with locate_errors(path), files.open_raw(path) as file:
        return compute_sha256(file)


def check_same_identity(output: str, manifest: Mapping[str, Any], identity: dict[str, Any]) -> None:
    """Raises ValueError if the manifest of an earlier run records another identity."""
    changed = list_differences({key: manifest.get(key) for key in identity}, identity)
    if changed:
        shown = "; ".join(changed[:_MAX_SHOWN_CHANGES])
        more = f" and {len(changed) - _MAX_SHOWN_CHANGES} more" if len(changed) > _MAX_SHOWN_CHANGES else ""
        raise ValueError(
            f"{output} was made from another corpus or with other settings: {shown}{more}. Choose another output, or "
            "replace it with --run.overwrite true"
        )
