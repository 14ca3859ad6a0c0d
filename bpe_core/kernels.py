"""What the compiled loops share: how they are compiled, and one hash table from integers to integers."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.ir as ir
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

EMPTY = np.int64(-1)
"""The key of a free slot; real keys are never negative."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_folder() -> str:
    """Returns where machine code is kept: a folder of its own for each state of this package's sources.

    Numba alone would go by the file of the kernel only, and use old code where a part copied into it has changed.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for base in (home, os.path.join(tempfile.gettempdir(), f"tokenmill-{os.getuid()}")):
        folder = os.path.join(base, "tokenmill-kernels", digest.hexdigest()[:16])
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return ""


_CACHE_FOLDER = _cache_folder()


def kernel(function: _Function) -> _Function:
    """Compiles `function` to machine code on first use; the result is kept on disk for later processes.

    A kernel releases the interpreter lock and works on NumPy arrays and numbers only.
    """
    return _compiled(function)


def lean_kernel(function: _Function) -> _Function:
    """As `kernel`, of a function that makes no array and returns none.

    No references to arrays are counted then, so it compiles and runs faster.
    """
    return _compiled(function, _nrt=False)


def part(function: _Function) -> _Function:
    """Compiles a function for kernels only: without what Python needs to call it, that takes half the time.

    A call from Python ends the process.
    """
    return _compiled(function, no_cpython_wrapper=True)


def lean_part(function: _Function) -> _Function:
    """As `part`, of a function that makes no array and returns none: see `lean_kernel`."""
    return _compiled(function, no_cpython_wrapper=True, _nrt=False)


def _compiled(function: _Function, **options: bool) -> _Function:
    config: Any = numba.config
    njit: Any = numba.njit
    before, config.CACHE_DIR = config.CACHE_DIR, _CACHE_FOLDER
    try:
        # Where nothing is said of references, a part would do as the kernel does that needed it first.
        options = {"_nrt": True, **options}
        compiled = njit(cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
    return cast(_Function, compiled)


def inlined(function: _Function) -> _Function:
    """Marks a part that is copied into its callers: a call would cost more than what it does, or there is one caller.

    In a caller that is not lean, references are counted for each array that it is given, in a tuple or alone.
    """
    njit: Any = numba.njit
    return cast(_Function, njit(inline="always")(function))


def _load_code(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), generate


load_eight: Any = intrinsic(_load_code)
"""`load_eight(array, at)` gives eight bytes from anywhere in a byte array, as a little-endian uint64."""


def _store_code(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        builder.store(arguments[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


store_eight: Any = intrinsic(_store_code)
"""`store_eight(array, at, value)` is the reverse of `load_eight`."""


def _prefetch_code(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), number, number, number])
        insert: Any = cgutils.get_or_insert_function
        function = insert(builder.module, function_type, "llvm.prefetch.p0")
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Any = intrinsic(_prefetch_code)
"""`prefetch(array, at)` asks the processor for the memory of an array's item, which is needed soon."""


def _least_code(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        vector = ir.VectorType(ir.IntType(32), 16)
        loaded = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer()))
        loaded.align = 4
        function_type = ir.FunctionType(ir.IntType(32), [vector])
        insert: Any = cgutils.get_or_insert_function
        function = insert(builder.module, function_type, "llvm.vector.reduce.umin.v16i32")
        return builder.call(function, [loaded])

    return types.uint32(array, types.int64), generate


least_of_sixteen: Any = intrinsic(_least_code)
"""`least_of_sixteen(array, at)` gives the least of sixteen uint32 from `array[at]` on, by one vector."""


@lean_part
def pair_key(left: Any, right: Any) -> Any:
    """Returns the two symbols of a pair as one int64; keys order as `(left, right)` does."""
    return (np.int64(left) << np.int64(32)) | np.int64(right)


@lean_part
def find_slot(keys: Int64s, key: Any) -> Any:
    """Returns the slot of `key` in an open-addressing table, or the free slot where it belongs.

    `keys` (int64) has a power of two as its size and at least one free slot.
    """
    mask = keys.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(7)) & mask
    while keys[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@lean_part
def copy_items(source: Any, start: Any, stop: Any, target: Any, at: Any) -> None:
    """Copies the items `start` to `stop` to the place `at`; a slice's assignment takes ten times as long to compile."""
    for i in range(stop - start):
        target[at + i] = source[start + i]


def with_capacity(array: Any, size: int) -> Any:
    """Returns the array, or one of at least `size` items that starts with those of the array."""
    if size <= array.size:
        return array
    bigger = np.empty(max(size, 2 * array.size), array.dtype)
    bigger[: array.size] = array
    return bigger


def table_size(num_keys: int) -> int:
    """Returns the slots of a table that is at most half full with `num_keys` keys."""
    return max(8, 1 << (2 * num_keys - 1).bit_length()) if num_keys > 0 else 8


def flat_bytes(array: pa.Array) -> tuple[UInt8s, Int64s]:
    """Returns the bytes of a string or binary array, and where each value starts in them (int64, one more than values).

    Values follow each other without gaps; a null has none.
    """
    array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.fill_null(b"")
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return flat[offsets[0] : offsets[-1]], offsets - offsets[0]
