"""What the compiled code promises to the compiler."""

import os
import subprocess
import sys
from pathlib import Path

COMPILE = """
from numba import types
from numba.core.registry import CPUDispatcher
from bpe_core import kernels, merge_candidates, merge_state, merge_step
from bpe_core.merges import learn_merges

learn_merges({"hug": 10, "pug": 5}, num_merges=2)
for module in (kernels, merge_candidates, merge_state, merge_step):
    for name, function in vars(module).items():
        if isinstance(function, CPUDispatcher) and not function.targetoptions.get("_nrt", True):
            for overload in function.overloads.values():
                returned = overload.signature.return_type
                print(name, isinstance(returned, types.Number | types.Boolean | types.NoneType), returned)
"""


def test_lean_functions_return_no_arrays(tmp_path: Path) -> None:
    # Such an array would be freed while it is in use. Only code that is compiled now says what it returns.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    compiled = printed.stdout.splitlines()
    assert {"merge_until True none", "find_slot True int64"} <= set(compiled)
    assert [line for line in compiled if " False " in line] == []
