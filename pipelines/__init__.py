"""The public API of tokenmill's pipelines: the jobs on Apache Beam, and the loader of training shards.

Everything is imported on first use, so `import pipelines` is cheap and `ShardBatches` never loads Beam.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.errors import BadInputError, LockLostError, OutputLockedError, PipelineError, WorkerLostError
    from pipelines.loader import Batching, ShardBatches, ShardDataset
    from pipelines.settings.project import Project
    from pipelines.settings.project_file import load_project
    from pipelines.sweeping.sweep import sweep
    from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
    from pipelines.training.train_tokenizer import train_tokenizer

__all__ = [
    "BadInputError",
    "Batching",
    "LockLostError",
    "OutputLockedError",
    "PipelineError",
    "Project",
    "ShardBatches",
    "ShardDataset",
    "WorkerLostError",
    "load_project",
    "sweep",
    "tokenize_corpus",
    "train_tokenizer",
]

_HOMES = {
    "pipelines.errors": (
        "BadInputError",
        "LockLostError",
        "OutputLockedError",
        "PipelineError",
        "WorkerLostError",
    ),
    "pipelines.loader": ("Batching", "ShardBatches", "ShardDataset"),
    "pipelines.settings.project": ("Project",),
    "pipelines.settings.project_file": ("load_project",),
    "pipelines.tokenizing.tokenize_corpus": ("tokenize_corpus",),
    "pipelines.sweeping.sweep": ("sweep",),
    "pipelines.training.train_tokenizer": ("train_tokenizer",),
}


def __getattr__(name: str) -> object:
    """Imports a public name on its first use."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines.storage.quiet_beam import quiet_beam_import

    with quiet_beam_import():
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
