"""For torch without _get_current_graph_task_keep_graph: when is a reentrant checkpoint's node done?

What the node saves (its inputs) is packed in tokens, which die when the engine frees the node's saved tensors (a backward without
retain_graph) or when the graph dies. The last one releases the instance. The forward itself runs without gradients and saves nothing."""

import weakref

from reprise.pytorch.compat import autograd


class _Token:
    __slots__ = ("value", "inner", "__weakref__")


def apply_with_tokens(compat, apply, instance, preserve, args):
    """CheckpointFunction.apply under a pack hook that is chained to the one on top."""
    top = compat.top_hooks()
    left = [0]

    def gone():
        left[0] -= 1
        if left[0] == 0:
            instance.release()

    def pack(x):
        token = _Token()
        token.inner = top is not None
        token.value = top[0](x) if top is not None else x
        left[0] += 1
        weakref.finalize(token, gone).atexit = False
        return token

    def unpack(token):
        return top[1](token.value) if token.inner else token.value

    autograd._push_saved_tensors_default_hooks(pack, unpack)
    try:
        return apply(instance, preserve, *args)
    finally:
        autograd._pop_saved_tensors_default_hooks()
