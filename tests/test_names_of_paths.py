"""Every place that takes a path takes any name, also one that looks like a glob, and means exactly that name."""

import os
import shutil
from pathlib import Path

import pytest
import yaml

from pipelines import cli
from pipelines.loader import Batching, ShardBatches

# Each has a sibling that it would match if it were a glob.
NAMES = {"run[1]?*": "run1xy", "un[closed": "uncclosed", "-a #%5B1%5D..": "-a #%5B1%5D.."}


def fill(folder: Path, text: str, name: str) -> None:
    """Writes everything that jobs read, made from one text."""
    (folder / f"{name}.in").mkdir(parents=True)
    (folder / f"{name}.in" / f"{name}.txt").write_text(text)
    (folder / f"{name}.words").write_text("hug\n")


def run_all(name: str, root: str) -> None:
    """Runs all commands on paths that are a folder, or nothing, and names made from one name."""
    path = {
        kind: f"{root}{name}.{kind}"
        for kind in "in tok tok2 tok3 cut shards report sweep json csv prom words export".split()
    }
    sections = {
        "corpus": {"files": [path["in"]]},
        "tokenizer": {"vocab_size": 260, "special_tokens": {"eos": "<eos>"}},
        "train": {"output": path["tok"]},
        "shards": {"output": path["shards"], "bucket_lengths": [8, 64], "provenance": False},
        "sweep": {"output": path["sweep"], "vocab_sizes": [258, 260]},
        "report": {"output": path["report"], "audit": path["json"], "sweep": f"{path['sweep']}/sweep.json"},
        "run": {"workers": 1, "progress": False, "metrics": path["prom"]},
    }
    config = f"{path['in']}.yaml"
    Path(config).write_text(yaml.safe_dump(sections))
    from_counts = [f"--train.output={path['tok2']}", f"--train.from_counts={path['tok']}/word_counts"]
    start_from = [f"--train.output={path['tok3']}", f"--train.start_from={path['tok']}"]
    Path(f"{config}.2").write_text(yaml.safe_dump({**sections, "tokenizer": {"vocab_size": 262}}))
    file = f"{path['in']}/{name}.txt"
    audited = [f"--tokenizer={path['tok']}", f"--corpus={path['in']}"]
    for command in (
        ["train", f"--config={config}"],
        ["train", f"--config={config}", *from_counts],
        ["train", f"--config={config}.2", *start_from],
        ["tokenize", f"--config={config}", f"--shards.tokenizer={path['tok']}", f"--corpus.files={file}"],
        ["verify shards", f"--config={config}"],
        ["verify", f"--config={config}", f"--positives={path['words']}", f"--json={path['json']}"],
        ["verify", f"--tokenizer={path['tok']}", "--against=hf", f"--corpus={file}"],
        ["sweep", f"--config={config}"],
        ["audit", f"--tokenizer={path['tok']}/tokenizer.json", f"--counts={path['tok']}/word_counts"],
        ["audit", *audited, f"--id-counts={path['shards']}", f"--json={path['json']}", f"--csv={path['csv']}"],
        ["cut", f"--tokenizer={path['tok']}", "--merges=1", f"--output={path['cut']}"],
        ["export", f"--tokenizer={path['tok']}", "--format=tiktoken", f"--output={path['export']}"],
        ["encode", f"--tokenizer={path['export']}/tokenizer.tiktoken", "--pattern=gpt2", "hug"],
        ["report", f"--config={config}"],
    ):
        cli.main(command)
    assert len(list(ShardBatches(path["shards"], Batching(batch_size=1)))) > 0


def read_outputs(folder: Path, name: str) -> dict[str, str]:
    """Relative path -> content of all files, without what differs by time or by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".prom", ".yaml", ".2") and path.name != "_plan.json":
            text = path.read_bytes().decode("latin-1").replace(f"{folder}/", "").replace(name, "NAME")
            if "seconds" not in text and "report" not in path.name and "sha256" not in text:
                found[str(path.relative_to(folder)).replace(name, "NAME")] = text
    return found


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TOKENMILL_"):
            monkeypatch.delenv(name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_relative"), [("run[1]?*", True), ("un[closed", False), ("-a #%5B1%5D..", True)])
def test_all_commands_give_the_same_for_every_name(
    name: str, is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "hug pug hugs hug bug, hug the pug"
    outputs = []
    for number, used in enumerate(("plain", name)):
        folder = tmp_path / str(number)
        fill(folder, text, used)
        if NAMES.get(used, used) != used:
            fill(folder, "nothing but zebras", NAMES[used])
        monkeypatch.chdir(folder)
        run_all(used, "" if is_relative else f"{folder}/")
        if NAMES.get(used, used) != used:
            for path in folder.glob(f"{NAMES[used]}.*"):
                assert path.suffix in (".in", ".words")
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        outputs.append(read_outputs(folder, used))
    assert outputs[0].keys() == outputs[1].keys()
    assert {key for key in outputs[0] if outputs[0][key] != outputs[1][key]} == set()
