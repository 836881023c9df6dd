"""Finds and opens libreprise.so: the one that is already in the process (preloaded), else the one that belongs to this package."""

import ctypes
import os

SONAME = "libreprise.so"


def candidates():
    """Paths where this package's library may stand, best first: named by the environment, in a build folder, installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("REPRISE_LIBRARY"):
        yield os.environ["REPRISE_LIBRARY"]
    folder = here
    for _ in range(4):  # <build>/python/reprise, <prefix>/lib/reprise/python/reprise, <prefix>/lib/pythonX.Y/site-packages/reprise
        folder = os.path.dirname(folder)
        yield os.path.join(folder, SONAME)
        yield os.path.join(folder, "lib", SONAME)


def find():
    """The path of the library, or None."""
    for path in candidates():
        if os.path.isfile(path):
            return os.path.abspath(path)
    return None


def loaded():
    """The library that is already in this process, or None."""
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def load():
    """The library, opened if need be; OSError that says what to do when there is none."""
    library = loaded()
    if library is not None:
        return library
    path = find()
    if path is None:
        raise OSError(
            "%s is neither loaded nor beside this package (looked at %s); preload it, or name it in REPRISE_LIBRARY"
            % (SONAME, ", ".join(list(candidates())[:3]))
        )
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
