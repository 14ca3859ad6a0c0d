"""Which module may import which, what the public API is, and which files the repository and the wheel contain."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import bpe_core
import pipelines

ROOT = Path(__file__).parent.parent


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for package in ("bpe_core", "pipelines") for path in (ROOT / package).rglob("*.py")}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes of a module that can run, also inside functions; skips the bodies of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield from (other, *nodes(other))
        else:
            yield child
            yield from nodes(child)


def imports_of(module: str, source: str) -> set[str]:
    """Returns the modules that a module's source imports."""
    found: set[str] = set()
    for node in nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in FILES else str(node.module) for name in named}
    return found


IMPORTS = {module: imports_of(module, path.read_text(encoding="utf-8")) for module, path in FILES.items()}


def reached(module: str, avoiding: str) -> set[str]:
    """Returns every module that importing `module` loads, directly or indirectly, except through `avoiding`."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in IMPORTS.get(waiting.pop(), set()) - seen - {avoiding}:
            seen.add(name)
            waiting.append(name)
    return seen


def test_imports_are_found_as_they_are_written() -> None:
    source = """
import os, apache_beam.io
from bpe_core import Tokenizer
from bpe_core.formats.tokenizer_json import tokenizer_json
if TYPE_CHECKING:
    import pydantic
else:
    import yaml
def f():
    from pipelines.storage.files import join
"""
    assert imports_of("m", source) == {
        *("os", "apache_beam.io", "bpe_core.formats.tokenizer_json", "bpe_core", "yaml", "pipelines.storage.files"),
    }
    assert {"bpe_core.tokenizer", "pipelines.cli", "pipelines"} <= set(FILES)
    assert "pipelines.training.train_tokenizer" in IMPORTS["pipelines.jobs"]


def test_the_core_imports_neither_the_pipelines_nor_beam_nor_pydantic() -> None:
    refused = {"pipelines", "apache_beam", "pydantic", "pydantic_settings"}
    for module, imports in IMPORTS.items():
        if module.split(".")[0] == "bpe_core":
            assert not {name.split(".")[0] for name in imports} & refused, module


def test_the_two_jobs_do_not_import_each_other() -> None:
    train, tokenize = "pipelines.training.train_tokenizer", "pipelines.tokenizing.tokenize_corpus"
    assert tokenize not in reached(train, avoiding="pipelines.cli")
    assert train not in reached(tokenize, avoiding="pipelines.cli")


def room_of(module: str) -> str:
    """Returns the folder of a module, as `pipelines.reading`; a module outside the folders is its own room."""
    return ".".join(module.split(".")[:2])


ROOMS = [
    *("bpe_core.kernels", "bpe_core.hashing", "bpe_core.word_table"),
    *("bpe_core.pretokenize", "bpe_core.merging", "bpe_core.encoding", "bpe_core.formats"),
    *("bpe_core.tokenizer", "bpe_core.export", "bpe_core.measuring", "bpe_core"),
    *("pipelines.errors", "pipelines.storage", "pipelines.settings", "pipelines.running", "pipelines.reading"),
    *("pipelines.training", "pipelines.sweeping", "pipelines.rows", "pipelines.tokenizing", "pipelines.loader"),
    *("pipelines.checking", "pipelines.report", "pipelines.jobs", "pipelines.commands", "pipelines", "pipelines.cli"),
]
"""The folders, and the modules outside them, in the direction of imports: each imports only from itself and the earlier
ones."""


def test_every_module_is_in_a_known_room() -> None:
    assert {room_of(module) for module in FILES} == set(ROOMS)


@pytest.mark.parametrize("module", sorted(FILES))
def test_imports_go_one_way(module: str) -> None:
    allowed = ROOMS[: ROOMS.index(room_of(module)) + 1]
    imported = {name for name in IMPORTS[module] if name in FILES}
    assert {name for name in imported if room_of(name) not in allowed} == set()


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = {module: {name for name in imports if name in FILES} for module, imports in IMPORTS.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def top_level_names(path: Path) -> set[str]:
    """Returns the names that a module defines at its top level; imported names are not among them."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names


def test_a_name_is_defined_in_one_module() -> None:
    modules: dict[str, list[str]] = {}
    for module, path in FILES.items():
        for name in top_level_names(path):
            modules.setdefault(name, []).append(module)
    assert {name: found for name, found in modules.items() if len(found) > 1 and not name.startswith("__")} == {}


def loaded_by(program: str) -> set[str]:
    """The top-level packages that are imported after a program."""
    command = f"{program}; import sys; print(sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return set(ast.literal_eval(done.stdout))


def test_importing_the_core_loads_neither_beam_nor_pydantic() -> None:
    loaded = loaded_by("import bpe_core")
    assert "bpe_core" in loaded
    assert not {"pipelines", "apache_beam", "pydantic", "pydantic_settings"} & loaded


def test_importing_the_loader_loads_neither_beam_nor_pydantic() -> None:
    for program in ("import pipelines.loader", "from pipelines import Batching, ShardBatches"):
        loaded = loaded_by(program)
        assert {"pipelines", "pyarrow"} <= loaded
        assert not {"apache_beam", "pydantic", "pydantic_settings"} & loaded


@pytest.mark.slow
def test_importing_the_pipelines_loads_nothing_and_leaves_logging_alone() -> None:
    assert not {"apache_beam", "pydantic", "numpy", "pyarrow"} & loaded_by("import pipelines")
    loaded_by(
        "import logging, pipelines; pipelines.train_tokenizer; "
        "root = logging.getLogger(); assert not root.handlers and not root.filters and root.manager.disable == 0"
    )


@pytest.mark.parametrize("package", [bpe_core, pipelines])
def test_all_is_sorted_and_every_name_in_it_exists(package: ModuleType) -> None:
    # As ruff sorts it: constants, then classes, then functions.
    names = package.__all__
    assert names == sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert [name for name in names if not hasattr(package, name)] == []
    assert set(names) <= set(dir(package))
    assert not hasattr(package, "no_such_name")


def test_the_documentation_imports_only_the_public_api() -> None:
    public = {"bpe_core": set(bpe_core.__all__), "pipelines": set(pipelines.__all__)}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in public:
                    assert node.module in public, f"{page.name}: {node.module} is not public"
                    assert {alias.name for alias in node.names} <= public[str(node.module)], page.name


def test_the_top_of_the_repository_holds_what_belongs_there() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("git or the .git folder is missing, so the files of the repository are not known")
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    top = {path.split("/")[0] for path in listed.split("\0") if path}
    assert (
        top
        - {
            *("bpe_core", "pipelines", "configs", "tests", "docs", "benchmarks", ".ci"),
            *("pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
            *(".gitignore", ".pre-commit-config.yaml"),
        }
        == set()
    )
    assert {"bpe_core", "pipelines", "tests", "pyproject.toml"} <= top


def test_small_commands_load_neither_beam_nor_pydantic() -> None:
    parse = "from pipelines.cli import _make_parser; _make_parser('{}')"
    assert not loaded_by(parse.format("")) & {"numpy", "numba", "pyarrow", "apache_beam", "pydantic"}
    for command in ("encode", "decode", "inspect", "export", "cut"):
        assert not loaded_by(parse.format(command)) & {"apache_beam", "pydantic"}, command
    assert not loaded_by("import bpe_core") & {"numpy", "numba", "pyarrow"}
