"""Silences the one warning that Apache Beam logs when it is imported, and nothing else.

Beam warns through the root logger if Google's client libraries are missing. We do not need them. The call also installs
a handler on the root logger, after which `logging.basicConfig` in the user's program would do nothing.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_beam_import() -> Iterator[None]:
    """Lets its block import Beam without that warning; leaves the logging of the process as it was."""
    if "apache_beam.io" in sys.modules:
        yield
        return
    root = logging.getLogger()
    handlers = root.handlers[:]
    root.addFilter(_is_other_record)
    try:
        yield
    finally:
        root.removeFilter(_is_other_record)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)


def _is_other_record(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("apitools not found")
