"""What differs between torch versions, chosen by looking at what this torch has, never by its number. Supported: 2.1 and later.

    generator        _checkpoint_without_reentrant_generator_impl(fn, args, kwargs, *, ...) or ..._generator(fn, <config...>, *args, **kwargs)
    top_hooks        _autograd._top_saved_tensors_default_hooks, else a shadow stack around push and pop
    set_versions     _autograd._unsafe_set_version_counter on tuples, else one by one
    keep_graph       _autograd._get_current_graph_task_keep_graph, else tokens (see graph_token.py)
    proxy            torch._C._get_dispatch_mode(PROXY), else the dispatch mode stack
    compiling        torch.compiler.is_compiling, else torch._utils.is_compiling
    resizable        UntypedStorage.resizable, else no storage counts as such (all are kept alive until release)

REPRISE_TORCH_COMPAT=shadow,token,single forces substitutes where the native name exists (for tests).
"""

import contextlib
import functools
import inspect
import os
import sys
import threading

import torch
import torch.utils.checkpoint as checkpoint

autograd = torch._C._autograd
_FORCED = os.environ.get("REPRISE_TORCH_COMPAT", "").split(",")
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
_CONFIG = {"preserve_rng_state", "context_fn", "determinism_check", "debug"}


# Was this storage allocated by torch's own allocator (and not taken from numpy, a file mapping, shared memory)?
resizable = getattr(torch.UntypedStorage, "resizable", lambda storage: False)


class Unsupported(RuntimeError):
    """This torch lacks something that the adapter stands on."""


class Compat:
    """The chosen functions. `table` says in words which they are."""

    def __init__(self):
        self.table = {}
        self._generator()
        self._apply()
        self._top_hooks()
        self._versions()
        self._keep_graph()
        self._modes()
        self.stop_error = getattr(checkpoint, "_StopRecomputationError", ())
        self.user_hooks = getattr(checkpoint, "_current_user_saved_tensors_hooks", lambda: None)

    # ---- the generator behind the non-reentrant form ------------------------------------------------------------------------------------

    def _generator(self):
        self.generator_name = next((name for name in _GENERATORS if hasattr(checkpoint, name)), None)
        if self.generator_name is None:
            raise Unsupported("torch.utils.checkpoint has no checkpoint generator (torch 2.1 or later is needed)")
        self.generator = getattr(checkpoint, self.generator_name)
        if not inspect.isgeneratorfunction(self.generator):
            raise Unsupported(self.generator_name + " is not a generator function")
        parameters = list(inspect.signature(self.generator).parameters.values())
        rest = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
        names = {p.name for p in parameters}
        if not _CONFIG <= names:
            raise Unsupported("%s lacks %s" % (self.generator_name, ", ".join(sorted(_CONFIG - names))))
        if rest is None:
            if [p.name for p in parameters[:3]] != ["fn", "args", "kwargs"] or any(p.kind is not p.KEYWORD_ONLY for p in parameters[3:]):
                raise Unsupported("unknown signature of " + self.generator_name)
            self._split, self.packed = self._split_packed, True
        else:
            if parameters[0].name != "fn" or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters[1:rest]):
                raise Unsupported("unknown signature of " + self.generator_name)
            self._rest = rest
            self._defaults = [p.default for p in parameters[2:rest]]
            self._context_at = [p.name for p in parameters[:rest]].index("context_fn")
            self._config_names = {p.name for p in parameters[1:rest]} | {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
            self._split, self.packed = self._split_flat, False
        self.no_context = inspect.signature(self.generator).parameters["context_fn"].default
        self.table["generator"] = "%s(%s)" % (self.generator_name, ", ".join(str(p) for p in parameters)[:120])

    def _split_packed(self, given, named):
        """-> fn, args, kwargs, context_fn, rebuild(fn) -> (positional, named)"""
        if len(given) == 3:
            fn, args, kwargs = given
        else:
            named = dict(named)
            fn, args, kwargs = [given[i] if i < len(given) else named.pop(n) for i, n in enumerate(("fn", "args", "kwargs"))]
        return fn, args, kwargs, named.get("context_fn", self.no_context), lambda f: ((f, args, kwargs), named)

    def _split_flat(self, given, named):
        fn, head, args = given[0], given[1 : self._rest], given[self._rest :]
        kwargs = {n: v for n, v in named.items() if n not in self._config_names}
        context = given[self._context_at] if self._context_at < len(given) else named.get("context_fn", self.no_context)
        return fn, args, kwargs, context, lambda f: ((f, *head, *args), named)

    def split(self, given, named):
        """The call of the generator taken apart: fn, args, kwargs, context_fn, rebuild."""
        return self._split(given, named)

    def new_generator(self, fn, preserve, args):
        """The generator (patched or not) for a reentrant call that is run as non-reentrant."""
        generator = getattr(checkpoint, self.generator_name)
        if self.packed:
            return generator(fn, args, {}, preserve_rng_state=preserve)
        return generator(fn, preserve, *self._defaults, *args)

    @staticmethod
    def early_stop(value):
        """The context in which a checkpoint's generator must start to have early stop off (False) or as it is (None)."""
        return contextlib.nullcontext() if value is None else checkpoint.set_checkpoint_early_stop(value)

    def _apply(self):
        self.function = getattr(checkpoint, "CheckpointFunction", None)
        if self.function is None or not hasattr(checkpoint, "set_checkpoint_early_stop"):
            raise Unsupported("torch.utils.checkpoint lacks CheckpointFunction or set_checkpoint_early_stop (torch 2.1 or later is needed)")
        if "apply" in self.function.__dict__:
            raise Unsupported("CheckpointFunction.apply is already overridden")

    # ---- saved-tensor hooks ----------------------------------------------------------------------------------------------------------------

    def _top_hooks(self):
        for name in ("_push_saved_tensors_default_hooks", "_pop_saved_tensors_default_hooks", "_saved_tensors_hooks_is_enabled"):
            if not hasattr(autograd, name):
                raise Unsupported("torch._C._autograd lacks " + name)
        self.hooks_enabled = autograd._saved_tensors_hooks_is_enabled
        self.restore_hooks = lambda: None
        if hasattr(autograd, "_top_saved_tensors_default_hooks") and "shadow" not in _FORCED:
            self.top_hooks, self.table["top_hooks"] = lambda: autograd._top_saved_tensors_default_hooks(False), "native"
            return
        local, push, pop = threading.local(), autograd._push_saved_tensors_default_hooks, autograd._pop_saved_tensors_default_hooks

        def stack():
            if not hasattr(local, "pairs"):
                local.pairs = []
            return local.pairs

        def shadow_push(pack, unpack):
            push(pack, unpack)
            stack().append((pack, unpack))

        def shadow_pop():
            pop()
            if stack():
                stack().pop()

        def restore():
            autograd._push_saved_tensors_default_hooks, autograd._pop_saved_tensors_default_hooks = push, pop

        autograd._push_saved_tensors_default_hooks, autograd._pop_saved_tensors_default_hooks = shadow_push, shadow_pop
        self.restore_hooks = restore
        self.top_hooks, self.table["top_hooks"] = lambda: stack()[-1] if stack() else None, "shadow stack"

    # ---- version counters -------------------------------------------------------------------------------------------------------------------

    def _versions(self):
        native = getattr(autograd, "_unsafe_set_version_counter", None)
        if native is None:
            raise Unsupported("torch._C._autograd lacks _unsafe_set_version_counter")
        scratch = torch.zeros(1, device="cpu")
        scratch.add_(1)
        try:
            native((scratch,), (0,))
            together = scratch._version == 0 and "single" not in _FORCED
        except TypeError:
            together = False
        if together:
            self.set_versions, self.table["set_versions"] = lambda tensors, versions: native(tuple(tensors), tuple(versions)), "tuples"
            return
        as_tuple = False
        try:
            native(scratch, 0)
        except TypeError:
            as_tuple = True
            native((scratch,), (0,))
        if scratch._version != 0:
            raise Unsupported("_unsafe_set_version_counter has no effect")

        def each(tensors, versions):
            for tensor, version in zip(tensors, versions):
                native(*(((tensor,), (version,)) if as_tuple else (tensor, version)))

        self.set_versions, self.table["set_versions"] = each, "one by one"

    # ---- may the graph be walked again? -------------------------------------------------------------------------------------------------------

    def _keep_graph(self):
        native = getattr(autograd, "_get_current_graph_task_keep_graph", None)
        self.use_tokens = native is None or "token" in _FORCED
        self.table["keep_graph"] = "tokens" if self.use_tokens else "native"
        task = torch._C._current_graph_task_id

        def keep_graph():
            try:
                return native() if task() != -1 else True
            except Exception:
                return True

        self.keep_graph = (lambda: True) if self.use_tokens else keep_graph

    # ---- modes in which we stay out of the way --------------------------------------------------------------------------------------------------

    def _modes(self):
        compiler = getattr(torch, "compiler", None)
        self.compiling = getattr(compiler, "is_compiling", None) or getattr(torch._utils, "is_compiling", lambda: False)
        if hasattr(torch._C, "_get_dispatch_mode") and hasattr(torch._C, "_TorchDispatchModeKey"):
            get, key = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.PROXY
            self.proxy, self.table["proxy"] = functools.partial(get, key), "native"
        else:
            self.proxy, self.table["proxy"] = _proxy_on_stack, "stack"
        self.no_dispatch = torch._C._DisableTorchDispatch


def _proxy_on_stack():
    module = sys.modules.get("torch.fx.experimental.proxy_tensor")
    stack = getattr(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack", None)
    return bool(module and stack and any(isinstance(mode, module.ProxyTorchDispatchMode) for mode in stack()))
