"""The table of docs/tokenizers.md: every row is held by tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_of_the_table_is_held_by_tests_that_exist() -> None:
    text = (ROOT / "docs" / "tokenizers.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and not row.startswith(("| ---", "| family"))]
    assert len(rows) >= 9
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named, row
        assert len(named) == row.count("::")
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (path, name)
