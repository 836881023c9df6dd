"""The two places where torch.utils.checkpoint is changed, the same in every version: `CheckpointFunction.apply` on the class, and the generator
behind the non-reentrant form, replaced in every module that holds it. `checkpoint` itself keeps its identity: the compiler knows it by that."""

import functools
import os
import sys
import threading

import torch
import torch.utils.checkpoint as checkpoint

from reprise import engine as engines
from reprise import library
from reprise.messages import say_once
from reprise.pytorch import selftest
from reprise.pytorch.adapter import Adapter, refuse
from reprise.pytorch.compat import Compat, Unsupported
from reprise.pytorch.graph_token import apply_with_tokens
from reprise.settings import settings
from reprise.status import RETAIN, RepriseError

COMPILED = "a checkpoint inside torch.compile is left to the compiler and is not protected"
UNTESTED, TESTING, READY, REFUSED = range(4)
READY_WAIT_S = 60


class Patch:
    """The state of the patches in this process."""

    def __init__(self):
        self.compat = Compat()
        self.adapter = None
        self.state = UNTESTED
        self.local = threading.local()  # the self-test's own adapter, on its thread
        self._lock = threading.RLock()
        self._undo = []

    # ---- in and out ---------------------------------------------------------------------------------------------------------------------

    def insert(self):
        compat = self.compat
        self.wrap_apply(compat.function, convertible=True)
        self._say_compiled()

        original = compat.generator
        generator = self._nonreentrant(original)
        for module in list(sys.modules.values()):  # those that imported it by name before us
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict) and names.get(compat.generator_name) is original:
                names[compat.generator_name] = generator
                self.on_remove(lambda names=names: names.__setitem__(compat.generator_name, original))
        self.on_remove(compat.restore_hooks)

    def wrap_apply(self, function, convertible):
        """Overrides `apply` on an autograd function of the reentrant kind (`apply(run_function, something, *args)`)."""
        under, patch = function.apply, self  # bound to the class

        def apply(cls, run_function, something, *args):
            if cls is not function:  # a subclass with its own rules
                return super(function, cls).apply(run_function, something, *args)
            return patch.reentrant(under, run_function, something, args, convertible)

        apply.__doc__ = under.__doc__
        function.apply = classmethod(apply)
        self.on_remove(lambda: delattr(function, "apply"))

    def _say_compiled(self):
        """torch.compile takes a checkpoint into its graph: nothing of ours runs then, which is said once."""
        operator = getattr(sys.modules.get("torch._higher_order_ops.wrap"), "TagActivationCheckpoint", None)
        original = getattr(operator, "__call__", None)
        if operator is None or "__call__" not in operator.__dict__:
            return

        @functools.wraps(original)
        def call(*args, **kwargs):
            say_once("compile", COMPILED)
            return original(*args, **kwargs)

        operator.__call__ = call
        self.on_remove(lambda: setattr(operator, "__call__", original))

    def on_remove(self, undo):
        self._undo.append(undo)

    def remove(self):
        while self._undo:
            self._undo.pop()()

    # ---- which adapter ------------------------------------------------------------------------------------------------------------------

    def current(self):
        """The adapter, or None when this call is to run as without us: no gradients (no replay can follow), compiling, refused."""
        if self.state == READY:
            if not torch.is_grad_enabled():
                return None
        else:
            own = getattr(self.local, "adapter", None)
            if own is not None:
                return own
            if self.state == REFUSED or not torch.is_grad_enabled():
                return None
        if self.compat.compiling() or self.compat.proxy():
            say_once("compile", COMPILED)
            return None
        return self.adapter if self.state == READY else self._ready()

    def _ready(self):
        """At the first checkpoint with gradients (not at import: a backward starts threads that a fork may not survive). Other threads wait for
        the self-test: what they recorded nothing for could not be replayed right."""
        if not self._lock.acquire(timeout=READY_WAIT_S):  # bounded, for the test imports modules, and this thread may be importing one
            say_once("self-test", "a checkpoint runs UNPROTECTED: the self-test in another thread did not end within %d s" % READY_WAIT_S)
            return None
        try:
            if self.state != UNTESTED:
                return self.adapter
            self.state = TESTING
            try:
                self._start()
            finally:
                if self.state == TESTING:
                    self.state = REFUSED
            return self.adapter
        finally:
            self._lock.release()

    def _start(self):
        try:
            engine = engines.get()
        except RepriseError as error:
            say_once("engine", "checkpoints run UNPROTECTED: %s" % str(error).replace("reprise: ", ""))
            return self.remove()
        why = selftest.run(self, checkpoint, settings)
        if why is None:
            self.adapter = Adapter(engine, self.compat, settings)
            self.state = READY
            return self._count_steps()
        self.remove()
        refuse(torch.__version__, why)
        if os.environ.get("REPRISE_REQUIRE") == "1":
            raise RepriseError("reprise: torch %s is not known to this adapter (%s), and REPRISE_REQUIRE is set" % (torch.__version__, why))
        return None

    def _count_steps(self):
        """Optimizer steps end what was never released, and count as steps of records."""
        register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if register is None:
            return
        handle = register(lambda optimizer, args, kwargs: self.adapter.step(optimizer))
        self.on_remove(handle.remove)

    # ---- the two forms ------------------------------------------------------------------------------------------------------------------

    def reentrant(self, under, function, preserve, args, convertible):
        """In place of CheckpointFunction.apply."""
        adapter = self.current()
        if adapter is None:
            return under(function, preserve, *args)
        if convertible and adapter.settings.convert and adapter is self.adapter:
            return self._converted(function, preserve, args)
        instance = adapter.wrap(function, True)
        if instance is None:
            return under(function, preserve, *args)
        if self.compat.use_tokens:
            return apply_with_tokens(self.compat, under, instance, preserve, args)
        return under(instance, preserve, *args)

    def _converted(self, function, preserve, args):
        generator = self.compat.new_generator(function, preserve, args)
        next(generator)
        try:
            result = function(*args)
        except BaseException as error:
            try:
                generator.throw(error)
            except StopIteration:
                pass
            raise
        for _ in generator:
            pass
        return result

    def _nonreentrant(self, original):
        """What stands in place of the generator: F runs between its two yields, B calls the function given to it."""
        compat, current = self.compat, self.current
        packed = compat.packed

        @functools.wraps(original)
        def generator(*given, **named):
            adapter = current()
            if adapter is None:
                yield from original(*given, **named)
                return
            if packed and len(given) == 3:  # as `split` does, without its frames: this runs in every forward
                function, args, kwargs = given
                context, rebuild = named.get("context_fn", compat.no_context), None
            else:
                function, args, kwargs, context, rebuild = compat.split(given, named)
            instance = adapter.wrap(function, False)
            if instance is None:
                yield from original(*given, **named)
                return
            if rebuild is None:
                below = original(instance, args, kwargs, **named)
            else:
                given, named = rebuild(instance)
                below = original(*given, **named)
            if context is not compat.no_context:  # the user's own choice of what is saved: not ours to change
                instance.replay_only = True
            instance.begin(args, kwargs)
            if instance.action == RETAIN:  # activations are kept: no hooks, nothing to replay
                try:
                    yield
                except BaseException:
                    instance.release()
                    raise
                instance.end()
                return
            try:
                if adapter.settled or instance.habit in adapter._stop_checked and instance.habit not in adapter._no_early_stop:
                    next(below)
                else:
                    with compat.early_stop(adapter.early_stop(instance.habit)):
                        next(below)
                if context is compat.no_context and not (adapter.settled or instance.name in adapter._scope_checked):
                    instance.enter_check()
            except BaseException:
                instance.release()
                raise
            try:
                yield
            except GeneratorExit:
                instance.leave_check()
                instance.release()
                below.close()
                raise
            except BaseException as error:
                instance.leave_check()
                instance.release()
                below.throw(error)
                return
            if instance.check is not None:
                instance.leave_check()
            instance.end()
            del instance  # the autograd graph keeps it from here on, through torch's frame
            for _ in below:
                yield

        return generator


_patch = None


def install():
    """Puts the patches in; True when they are. What this torch lacks is said, once."""
    global _patch
    if _patch is not None:
        return True
    try:
        patch = Patch()
        patch.insert()
    except Unsupported as error:
        refuse(torch.__version__, error)
        return False
    _patch = patch
    announce()
    return True


def announce():
    """Tells libreprise.so, if it is in the process, that torch is instrumented: its line at exit says so."""
    if engines.extension is not None:
        engines.extension.attached(2)
        return
    found = library.loaded()
    if found is not None and hasattr(found, "reprise_attached"):
        found.reprise_attached(2)


def uninstall():
    global _patch
    if _patch is not None:
        _patch.remove()
        _patch = None


def active():
    """The Patch of this process, or None."""
    return _patch
