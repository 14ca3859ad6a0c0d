"""How kernels (functions that numba compiles to machine code) are compiled and cached, and what all of them share.

Two choices pick a decorator. Who calls the function: Python code (`kernel`) or only other kernels (`device_function`,
as in `numba.cuda`)? Does it create arrays or return any (`allocating_...`)? Most do neither and leave out numba's
reference counting, which makes them compile and run faster.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.ir as ir
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
UInt32s = npt.NDArray[np.uint32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def hash_sources(package: Path) -> str:
    """Returns a hash (16 hexadecimal digits) of all Python files in a folder and its subfolders: paths and contents."""
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(package).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def make_cache_folder(package: Path) -> str:
    """Returns the folder for compiled kernels, which it creates; an empty string if no place is writable.

    Every state of the package's sources has a folder of its own. Numba alone only checks the file that a kernel is in.
    It would go on using old machine code after a change in a function that the kernel calls from another file.
    """
    # Windows has no user ids, and there each user has a temporary folder of their own.
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for base in (home, os.path.join(tempfile.gettempdir(), f"tokenmill{user}")):
        folder = os.path.join(base, "tokenmill-kernels", hash_sources(package))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return ""


_CACHE_FOLDER = make_cache_folder(Path(__file__).parent)


def kernel(function: _Function) -> _Function:
    """Compiles a function that Python calls and that neither creates nor returns arrays.

    Like all functions compiled here it accepts NumPy arrays, numbers and tuples of them only. It is compiled at the
    first call with new argument types, and the machine code is kept on disk for later processes. It runs without the
    global interpreter lock (GIL), so that threads can call kernels in parallel. Without reference counts for arrays
    (numba's NRT, `_nrt`), it must not return an array: that array would be freed while it is in use.
    """
    return _compile_function(function, _nrt=False)


def allocating_kernel(function: _Function) -> _Function:
    """Compiles a function that Python calls and that may create and return arrays; otherwise like `kernel`."""
    return _compile_function(function, _nrt=True)


def device_function(function: _Function) -> _Function:
    """Compiles a function that only kernels call and that neither creates nor returns arrays.

    Leaving out the wrapper that Python would call (`no_cpython_wrapper`) halves the time to compile. A call from Python
    would crash the process.
    """
    return _compile_function(function, _nrt=False, no_cpython_wrapper=True)


def allocating_device_function(function: _Function) -> _Function:
    """Compiles a function that only kernels call and that may create arrays; otherwise like `device_function`."""
    return _compile_function(function, _nrt=True, no_cpython_wrapper=True)


def inline_device_function(function: _Function) -> _Function:
    """Marks a function whose body numba copies into each kernel that calls it, before types are inferred.

    For functions that cost less than a call, or that have only one caller. An allocating kernel also counts references
    to each array that it passes to such a function, alone or in a tuple.
    """
    njit: Any = numba.njit
    return cast(_Function, njit(inline="always")(function))


def _compile_function(function: _Function, **options: bool) -> _Function:
    # `_nrt` is always given: numba would otherwise take it from whichever kernel happens to call the function first.
    config: Any = numba.config
    njit: Any = numba.njit
    before, config.CACHE_DIR = config.CACHE_DIR, _CACHE_FOLDER
    try:
        compiled = njit(cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
    return cast(_Function, compiled)


def function_by_type(stub: _Function) -> _Function:
    """Makes a device function that has one implementation for each type of its first argument, a NamedTuple.

    It is what `functools.singledispatch` is for Python. A kernel that calls it is compiled once for each such type.
    The decorated function has a docstring and no body; `implements` adds the implementations.
    """
    implementations: dict[type, Callable[..., Any]] = {}

    @wraps(stub)
    def call(first: Any, *others: Any) -> Any:
        return implementations[type(first)](first, *others)

    def choose(first: Any, *others: Any) -> Any:
        return implementations[first.instance_class]

    cast(Any, call).implementations = implementations
    if not cast(Any, numba.config).DISABLE_JIT:
        options: Any = {"_nrt": False, "no_cpython_wrapper": True, "error_model": "numpy", "cache": False}
        choose_when_compiling: Any = overload(call, jit_options=options, strict=False)
        choose_when_compiling(choose)
    return cast(_Function, call)


def implements(function: Callable[..., Any], first_type: type) -> Callable[[_Function], _Function]:
    """Returns a decorator that makes a function the one that `function`, from `function_by_type`, is for a type.

    It has the same arguments, and neither creates nor returns arrays.
    """

    def register(implementation: _Function) -> _Function:
        cast(Any, function).implementations[first_type] = implementation
        return implementation

    return register


if cast(Any, numba.config).DISABLE_JIT:
    np.seterr(over="ignore")  # Hashes overflow on purpose; compiled code does not warn of it.


def _make_intrinsic(define: Callable[..., Any], python: Callable[..., Any]) -> Any:
    """Returns a numba intrinsic, or, if compiling is disabled (`NUMBA_DISABLE_JIT=1`), a Python function like it."""
    config: Any = numba.config
    return python if config.DISABLE_JIT else intrinsic(define)


def _point_to_item(context: Any, builder: Any, signature: Any, arguments: Any, llvm_type: Any) -> Any:
    """Emits the address of `array[at]`, the first two arguments of an intrinsic, as a pointer to an LLVM type."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), llvm_type.as_pointer())


def _define_load(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_point_to_item(context, builder, signature, arguments, ir.IntType(64)))
        loaded.align = 1
        return loaded

    return types.uint64(array, types.int64), generate


def _load_in_python(array: Any, at: Any) -> Any:
    return np.uint64(int.from_bytes(array[int(at) : int(at) + 8].tobytes(), "little"))


load_uint64: Any = _make_intrinsic(_define_load, _load_in_python)
"""`load_uint64(array, at)` returns the bytes `array[at : at + 8]` of a uint8 array as one little-endian uint64.

`at` needs no alignment, and the array's bounds are not checked.
"""


def _define_store(typing_context: Any, array: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _point_to_item(context, builder, signature, arguments, ir.IntType(64))
        builder.store(arguments[2], pointer).align = 1
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


def _store_in_python(array: Any, at: Any, value: Any) -> None:
    array[int(at) : int(at) + 8] = np.frombuffer(int(value).to_bytes(8, "little"), np.uint8)


store_uint64: Any = _make_intrinsic(_define_store, _store_in_python)
"""`store_uint64(array, at, value)` writes a uint64 to `array[at : at + 8]`, the reverse of `load_uint64`."""


def _define_prefetch(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _point_to_item(context, builder, signature, arguments, ir.IntType(8))
        number = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), number, number, number])
        insert: Any = cgutils.get_or_insert_function
        function = insert(builder.module, function_type, "llvm.prefetch.p0")
        # For reading (0), into all caches (3), as data rather than instructions (1).
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _prefetch_in_python(array: Any, at: Any) -> None:
    pass


prefetch: Any = _make_intrinsic(_define_prefetch, _prefetch_in_python)
"""`prefetch(array, at)` tells the processor to load the cache line of `array[at]`, which will be read soon."""


def _define_min(typing_context: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), 16)
        loaded = builder.load(_point_to_item(context, builder, signature, arguments, vector))
        loaded.align = 4
        function_type = ir.FunctionType(ir.IntType(32), [vector])
        insert: Any = cgutils.get_or_insert_function
        function = insert(builder.module, function_type, "llvm.vector.reduce.umin.v16i32")
        return builder.call(function, [loaded])

    return types.uint32(array, types.int64), generate


def _find_min_in_python(array: Any, at: Any) -> Any:
    return array[int(at) : int(at) + 16].min()


find_min_of_16: Any = _make_intrinsic(_define_min, _find_min_in_python)
"""`find_min_of_16(array, at)` returns the smallest of `array[at : at + 16]`, all uint32, with vector instructions."""


@device_function
def copy_items(source: Any, start: Any, stop: Any, target: Any, at: Any) -> None:
    """Copies `source[start:stop]` to `target[at:]`; numba takes ten times as long to compile a slice assignment."""
    for i in range(stop - start):
        target[at + i] = source[start + i]


def with_capacity(array: Any, size: int) -> Any:
    """Returns the array itself if it has at least `size` items, else a larger copy.

    The copy has at least twice as many items as the array, so that repeated growth stays cheap. The items after those
    of the array have no defined value.

    >>> with_capacity(np.array([3, 4, 5]), 4).size
    6
    """
    if size <= array.size:
        return array
    bigger = np.empty(max(size, 2 * array.size), array.dtype)
    bigger[: array.size] = array
    return bigger


def flatten_bytes(array: pa.Array) -> tuple[UInt8s, Int64s]:
    """Returns the values of a string or binary array as one array of bytes, and the offsets between them.

    Value `i` is `data[offsets[i] : offsets[i + 1]]`, and a null has no bytes. The offsets (int64) start at 0.

    >>> data, offsets = flatten_bytes(pa.array(["ab", None, "c"]))
    >>> data.tobytes(), offsets.tolist()
    (b'abc', [0, 2, 2, 3])
    """
    array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.fill_null(b"")
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return flat[offsets[0] : offsets[-1]], offsets - offsets[0]
