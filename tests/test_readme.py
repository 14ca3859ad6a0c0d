"""Every command and every line of Python in the README does what it says."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pipelines.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    jobs = [
        ["tokenmill", words[1], "--config", words[2].removeprefix("CONFIG=")] for words in commands if len(words) == 3
    ]
    for words in [*jobs, *(words for words in commands if words[0] == "tokenmill" and "--settings" not in words)]:
        faster = ["--run.workers", "1"] if "--config" in words and "--run.workers" not in words else []
        main([*words[1:], *faster])
    printed = capfd.readouterr()
    assert "learned 200 merges in " in printed.err
    assert re.findall(r"│ .* │", printed.err)[:3] == re.findall(r"│ .* │", README)
    assert "648 documents, 18,872 tokens in 648 rows, 0.1 MB of text" in printed.err
    assert "characters 21 (18 without spaces)   words 4 (4 different)" in printed.out


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(code, {})
    assert capsys.readouterr().out == "[(b'u', b'g'), (b'h', b'ug')]\n"


def test_make_knows_the_targets() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for line in (line for block in blocks("sh") for line in block.splitlines() if line.startswith("make ")):
        subprocess.run([*shlex.split(line), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150
