"""Reprise from Python.

Under the preload nothing of this is needed: torch.utils.checkpoint is instrumented when it is imported. By hand:

    import reprise
    reprise.attach()                              # instrument what is imported (without the preload: declared buffers only)
    reprise.is_active()                           # are checkpoints of this process protected?
    reprise.track(array, "queue")                 # declare a buffer: a tensor, a numpy array, anything with a buffer
    with reprise.segment("layer3") as forward:    # a forward of your own framework ...
        ...
    with reprise.segment("layer3", replay_of=forward.instance):   # ... and its replay
        ...
    block = reprise.segment("block")(block)       # or only a name for a function or module that is checkpointed
    reprise.stats(), reprise.buffer_info(array), reprise.step(), reprise.release(instance)

`reprise.check` compares replayed gradients with retained ones. Importing this package imports no framework.
"""

from reprise.status import DivergedError, RejectedError, RepriseError

__version__ = "0.1.0"
_LAZY = {
    "segment": "reprise.api",
    "track": "reprise.api",
    "untrack": "reprise.api",
    "stats": "reprise.api",
    "buffer_info": "reprise.api",
    "is_active": "reprise.api",
    "step": "reprise.api",
    "release": "reprise.api",
}
__all__ = ["DivergedError", "RejectedError", "RepriseError", "attach", "check", *_LAZY]


def __getattr__(name):
    import importlib

    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in ("attach", "check"):
        return importlib.import_module("reprise." + name)
    raise AttributeError("module 'reprise' has no attribute %r" % name)
