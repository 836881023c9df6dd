"""Waits for a framework to be imported in a Python process under the preload.

Usually the preload has a built-in module for the start of the interpreter (interpose/startup_module.h), which does in C what stands at the end here, and
loads this file, under another name, when a framework's turn has come. Where it cannot, this runs as sitecustomize at every start: takes its own folder
out of the path again, and lets the user's sitecustomize run. It imports nothing that the interpreter has not imported already: start-up must not be felt."""

import os
import sys

_FOLDER = __file__.rpartition("/")[0]  # absolute: the preload has put it so into PYTHONPATH
_TARGETS = frozenset(
    (
        "torch",
        "torch.utils.checkpoint",
        "megatron.core.tensor_parallel.random",
        "deepspeed.runtime.activation_checkpointing.checkpointing",
    )
)


class Early:
    """Finds `reprise` where the user has not installed it, and hands over to reprise.attach when a framework's turn has come."""

    hands_over_to_reprise = True  # who is asked by reprise.attach must not ask it back

    def find_spec(self, name, path=None, target=None):
        if name in _TARGETS:
            try:
                from reprise import attach

                return attach.finder().find_spec(name, path, target)
            except Exception as error:
                sys.stderr.write("reprise: cannot instrument %s: %s: %s; it runs as without Reprise\n" % (name, type(error).__name__, error))
        elif name == "reprise":
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path) if finder is not self and hasattr(finder, "find_spec") else None
                if spec is not None and spec.loader is not None:
                    return spec
            from importlib.util import spec_from_file_location

            package = os.path.join(os.path.dirname(_FOLDER), "reprise")
            return spec_from_file_location(name, os.path.join(package, "__init__.py"), submodule_search_locations=[package])
        return None


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
    if spec is None or spec.loader is None or spec.origin == __file__:
        return
    # Not from importlib.util: that imports a dozen modules more (1.4 ms), and Debian has a sitecustomize for everybody.
    try:
        from _frozen_importlib import module_from_spec
    except ImportError:
        from importlib.util import module_from_spec

    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _leave_path()
    if os.environ.get("REPRISE_POLICY") != "off":
        sys.meta_path.insert(0, Early())
    _users_own()
