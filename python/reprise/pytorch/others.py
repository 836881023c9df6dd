"""The checkpoint functions that Megatron and DeepSpeed bring along: autograd functions of the reentrant kind, called `run_function, something,
*args`, which run `run_function` without gradients in their forward and with gradients in their backward. Same wrap as torch's."""

from reprise.messages import say_once


def install(patch, module):
    """Wraps what there is in `module`; True when something was."""
    found = False
    function = getattr(module, "CheckpointFunction", None)
    if isinstance(function, type) and hasattr(function, "apply") and "apply" not in function.__dict__:
        patch.wrap_apply(function, convertible=False)
        found = True
    later = getattr(module, "CheckpointWithoutOutput", None)
    if isinstance(later, type) and callable(getattr(later, "checkpoint", None)):
        _wrap_method(patch, later)
        found = True
    if not found:
        say_once(
            ("others", module.__name__),
            "%s holds no checkpoint function that is known here; its checkpoints run UNPROTECTED" % module.__name__,
        )
    return found


def _wrap_method(patch, owner):
    """CheckpointWithoutOutput.checkpoint(self, run_function, *args) keeps the function and runs it again from a hook."""
    original = owner.checkpoint

    def checkpoint(self, run_function, *args, **kwargs):
        adapter = patch.current()
        instance = adapter.wrap(run_function, True) if adapter is not None else None
        return original(self, instance if instance is not None else run_function, *args, **kwargs)

    checkpoint.__doc__, checkpoint.__wrapped__ = original.__doc__, original
    owner.checkpoint = checkpoint
    patch.on_remove(lambda: setattr(owner, "checkpoint", original))
