"""Every setting that a message or a description names exists, in the section that it is said to be in."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.settings.project import Project

ROOT = Path(__file__).parents[2]
SECTIONS = {name: field.annotation for name, field in Project.model_fields.items()}
NAMED = re.compile(rf"(?<![\w./{{])({'|'.join(SECTIONS)})\.([a-z][a-z_0-9]*)(?![\w(}}])")
MANIFEST_ENTRIES = {"tokenizer.fingerprint"}
FILE_TYPES = {"json", "model", "csv", "html", "tiktoken", "prom", "yaml", "parquet", "py", "txt"}


def fields_of(section: str) -> set[str]:
    kinds = [SECTIONS[section], *getattr(SECTIONS[section], "__args__", ())]
    return {name for kind in kinds for name in getattr(kind, "model_fields", ())}


def texts_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of every string in a module that is not a docstring; an f-string's values become `{}`."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield node.lineno, node.value


def wrong_names(text: str) -> list[str]:
    return [
        f"{section}.{name}"
        for section, name in NAMED.findall(text)
        if name not in FILE_TYPES and f"{section}.{name}" not in MANIFEST_ENTRIES and name not in fields_of(section)
    ]


MODULES = sorted([*ROOT.glob("bpe_core/**/*.py"), *ROOT.glob("pipelines/**/*.py")])
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("configs/*.yaml")])


def test_settings_named_in_messages_exist() -> None:
    texts = [(path, line, text) for path in MODULES for line, text in texts_in(path)]
    assert sum(len(NAMED.findall(text)) for _, _, text in texts) > 30
    found = [(str(path.relative_to(ROOT)), line, wrong_names(text)) for path, line, text in texts]
    assert [entry for entry in found if entry[2]] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_settings_named_in_documents_exist(path: Path) -> None:
    assert wrong_names(path.read_text()) == []


def test_a_wrong_name_is_found() -> None:
    text = "set shards.tokeniser, train.json, corpus.files, {}.shards.x, shards.{} or sweep.carry"
    assert wrong_names(text) == ["shards.tokeniser", "sweep.carry"]
