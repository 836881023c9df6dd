"""Waits for a framework to be imported in a Python process under the preload.

Usually the preload has a built-in module for the start of the interpreter (interpose/startup_module.h), which does in C what stands at the end here, and
loads this file, under another name, when a framework's turn has come, or (`attach`) at the first tensor. Where it cannot, this runs as sitecustomize at
every start: takes its own folder out of the path again, and lets the user's sitecustomize run. It imports nothing that the interpreter has not imported
already: start-up must not be felt."""

import os
import sys

try:  # not importlib.util: that imports a dozen modules more (1.4 ms), and finders run under the import lock, where waiting for a module is a deadlock
    from _frozen_importlib import _load_unlocked as load
    from _frozen_importlib_external import spec_from_file_location
except ImportError:
    from importlib._bootstrap import _load_unlocked as load
    from importlib.util import spec_from_file_location

_FOLDER = __file__.rpartition("/")[0]  # absolute: the preload names it so
TARGETS = frozenset(
    (
        "torch",
        "torch.utils.checkpoint",
        "megatron.core.tensor_parallel.random",
        "deepspeed.runtime.activation_checkpointing.checkpointing",
    )
)


def _ours(finder):
    return getattr(finder, "hands_over_to_reprise", False)


def _say(what, error):
    try:
        sys.stderr.write("reprise: cannot %s: %s: %s; it runs as without Reprise\n" % (what, type(error).__name__, error))
    except Exception:
        pass  # a closed stderr


class Early:
    """Finds `reprise` where the user has not installed it, and hands over to reprise.attach when a framework's turn has come."""

    hands_over_to_reprise = True  # who is asked by reprise.attach, or by another one of these, must not ask back

    def find_spec(self, name, path=None, target=None):
        if name in TARGETS:
            try:
                from reprise import attach

                return attach.finder().find_spec(name, path, target)
            except Exception as error:
                _say("instrument " + name, error)
        elif name == "reprise":
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path) if not _ours(finder) and hasattr(finder, "find_spec") else None
                if spec is not None and spec.loader is not None:
                    return spec
            package = os.path.join(os.path.dirname(_FOLDER), "reprise")
            return spec_from_file_location(name, os.path.join(package, "__init__.py"), submodule_search_locations=[package])
        return None


def attach():
    """At the first tensor, where nothing of ours was there to see the framework being imported."""
    try:
        if not any(map(_ours, sys.meta_path)):
            sys.meta_path.insert(0, Early())
        from reprise import attach as adapter

        adapter.attach()
    except Exception as error:
        _say("attach to this Python", error)
    finally:
        _leave_path()


def _leave_path():
    """No trace of this folder for the job and its children (the preload puts it in for them anew)."""
    while _FOLDER in sys.path:
        sys.path.remove(_FOLDER)
    value = os.environ.get("PYTHONPATH")
    if value == _FOLDER:
        del os.environ["PYTHONPATH"]
    elif value is not None:
        rest = [entry for entry in value.split(os.pathsep) if entry != _FOLDER]
        if rest:
            os.environ["PYTHONPATH"] = os.pathsep.join(rest)
        else:
            del os.environ["PYTHONPATH"]


def _users_own():
    """The next sitecustomize on the path takes this one's place."""
    finder = next((f for f in sys.meta_path if getattr(f, "__name__", "") == "PathFinder"), None)
    spec = finder.find_spec("sitecustomize") if finder is not None else None
    if spec is not None and spec.origin != __file__:
        load(spec)


if __name__ == "sitecustomize":
    _leave_path()
    if os.environ.get("REPRISE_POLICY") != "off":
        sys.meta_path.insert(0, Early())
    _users_own()
