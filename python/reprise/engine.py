"""The engine of this process, opened at the first segment and never earlier: the C extension where it is there, ctypes otherwise.

REPRISE_EXTENSION=0 forces ctypes. Tests put their own engine in with `use`.
"""

import os
import threading

from reprise.engine_ctypes import CtypesEngine
from reprise.status import RepriseError

try:
    if os.environ.get("REPRISE_EXTENSION") == "0":
        raise ImportError("switched off by REPRISE_EXTENSION=0")
    from reprise import _reprise as extension
except ImportError:
    extension = None


class ExtensionEngine(CtypesEngine):
    """The same engine; what runs in every forward and replay goes through the extension, which releases the GIL while the engine works."""

    backend = "extension"

    def __init__(self):
        super().__init__()
        extension.open(int(self._table_address()))
        for name in (
            "forward_begin segment_end replay_begin replay_end replay_dirty segment_abort release step note_generator note_replay mode last_error"
        ).split():
            setattr(self, name, getattr(extension, name))
        self.pack = extension.Items

    def _table_address(self):
        import ctypes

        return ctypes.addressof(self.table)


_lock = threading.Lock()
_engine = None
_failure = None


def use(engine):
    """Makes `engine` this process's engine (None: forget it)."""
    global _engine, _failure
    _engine, _failure = engine, None
    return engine


def current():
    """The engine if it is open, else None."""
    return _engine


def get():
    """The engine; RepriseError when it cannot be opened (the same every time)."""
    global _engine, _failure
    if _engine is not None:
        return _engine
    with _lock:
        if _failure is not None:
            raise _failure
        if _engine is None:
            try:
                _engine = CtypesEngine() if extension is None else ExtensionEngine()
            except RepriseError as error:
                _failure = error
                raise
    return _engine
