"""Instruments frameworks right after they were imported, or where they stand already.

Two ways lead here: python/attach when a framework is being imported, and `attach()` at the first tensor where nothing of ours ran at the interpreter's
start (-S), or by hand. Either may come first, and both may come."""

import sys
import types

ROOT = "torch"  # its import takes torch.utils.checkpoint along in newer versions, half-way: instrumented when it has come to its end
TORCH = "torch.utils.checkpoint"
OTHERS = ("megatron.core.tensor_parallel.random", "deepspeed.runtime.activation_checkpointing.checkpointing")

_finder = None


def attach():
    """Instruments what is imported and waits for the rest; may be called any number of times. True unless torch was refused."""
    finder()
    return _instrument_complete() if _complete(ROOT) else True


def _instrument_complete():
    """Every framework module that has run to its end and is not instrumented yet."""
    good = True
    for name in (TORCH, *OTHERS):
        if name in finder().targets and _complete(name):
            finder().targets.discard(name)
            good &= _instrument(name)
    return good


def _instrument(name):
    """Instruments an imported module; says so if it cannot."""
    try:
        from reprise.pytorch import install

        return install(sys.modules[name])
    except Exception as error:
        from reprise.messages import say

        say("cannot instrument %s: %s: %s; it runs as without Reprise" % (name, type(error).__name__, error))
        return False


def _complete(name):
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def finder():
    """The import hook, put first on sys.meta_path once."""
    global _finder
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
    return _finder


class _Finder:
    """Finds nothing of its own: it lets the others find, and has the framework instrumented once its module has run."""

    def __init__(self):
        self.targets = {ROOT, TORCH, *OTHERS}  # each is taken out when it was instrumented
        self.late = ROOT in sys.modules and not _complete(ROOT)

    def find_spec(self, name, path=None, target=None):
        if name not in self.targets:
            if self.late and _complete(ROOT):  # we came while torch was half-way imported: this is the next import after it
                self.late = False
                _instrument_complete()
            return None
        for other in sys.meta_path:
            if other is self or getattr(other, "hands_over_to_reprise", False) or not hasattr(other, "find_spec"):
                continue
            spec = other.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader:
    """The module's own loader, and then the instrumentation. Everything else is the loader's, which is also what the module sees."""

    def __init__(self, loader, owner):
        self._loader, self._owner = loader, owner

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        spec = module.__spec__
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if spec.name == ROOT:
            self._owner.targets.discard(ROOT)
            _instrument_complete()  # its code has run; only the import system is not done with it
        elif _complete(ROOT):
            self._owner.targets.discard(spec.name)
            _instrument(spec.name)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Callable(types.ModuleType):
    """`reprise.attach()` is `reprise.attach.attach()`."""

    def __call__(self):
        return attach()


sys.modules[__name__].__class__ = _Callable
