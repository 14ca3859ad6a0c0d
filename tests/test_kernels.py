"""What the compiled code promises to the compiler."""

import os
import subprocess
import sys
from pathlib import Path

COMPILE = """
import sys
from numba import types
from numba.core.registry import CPUDispatcher
from bpe_core import Tokenizer, count_words
from bpe_core.pretokenize.word_counting import partition_word_counts

partition_word_counts(count_words(["hug pug"]), 2)
Tokenizer.train(["hug pug " * 300 + "hugpug" * 300], num_merges=2).encode("hug " + "pughug" * 300)
modules = [module for name, module in sys.modules.items() if name.startswith("bpe_core.")]
for module in modules:
    for name, function in vars(module).items():
        if isinstance(function, CPUDispatcher) and not function.targetoptions.get("_nrt", True):
            for overload in function.overloads.values():
                returned = overload.signature.return_type
                values = returned if isinstance(returned, types.BaseTuple) else [returned]
                plain = all(isinstance(value, types.Number | types.Boolean | types.NoneType) for value in values)
                print(name, plain, returned)
"""


def test_lean_functions_return_no_arrays(tmp_path: Path) -> None:
    # Such an array would be freed while it is in use. Only code that is compiled now says what it returns.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    compiled = printed.stdout.splitlines()
    assert {"merge_until True none", "find_slot True int64", "_encode True none", "_count True int64"} <= set(compiled)
    assert [line for line in compiled if " False " in line] == []
