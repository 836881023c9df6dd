"""One checkpoint call under the replay rule: its first run is the forward F, every later run a replay B of that very instance."""

import inspect
import weakref

from reprise.messages import say, say_once
from reprise.pytorch import generators
from reprise.pytorch.calibrate import EarlyStopCheck, ScopeCheck
from reprise.pytorch.compat import autograd
from reprise.pytorch.pystate import CannotRewind, Rollback, describe
from reprise.pytorch.saved import Ranges, SavedCopies
from reprise.pytorch.scope import _tensors_in
from reprise.status import BUSY, FORWARD_REPLAY_ONLY, FORWARD_RETAINED_ONLY, ITEM_GENERATOR, MODE_AUDIT, OK, REJECTED, RELEASED, REPLAY, REPLAY_GATED, RETAIN, DivergedError, error_for

NEW, OPEN, DONE = range(3)


class Instance:
    """Stands in for the checkpointed function, and looks like it. Holds what the replay needs until it is released: by its end of life (the
    autograd graph holds it), by the end of a reentrant backward, or by age."""

    __slots__ = (
        "adapter",
        "function",
        "name",
        "habit",
        "reentrant",
        "phase",
        "number",
        "execution",
        "action",
        "call",
        "usual",
        "_scope",
        "_generators",
        "replays",
        "wrote",
        "step",
        "check",
        "replay_only",
        "released",
        "statistics",
        "__weakref__",
    )

    def __init__(self, adapter, function, name, reentrant, usual=None):
        self.adapter, self.function, self.name, self.reentrant = adapter, function, name, reentrant
        self.phase, self.number, self.execution, self.action = NEW, 0, 0, REPLAY
        training = getattr(function, "training", None)
        if training is None:  # a method
            training = getattr(getattr(function, "__self__", None), "training", None)
        # Whether a replay may stop early is found out once for each: an operator may save otherwise in training (RReLU).
        self.habit = (name, training)
        self.usual = usual  # of the module, where the extension can begin by itself
        self.call = self._scope = self.check = None
        self._generators, self.replays, self.wrote = (), 0, ()
        self.step, self.released = adapter.steps, None
        self.statistics = ()
        self.replay_only = reentrant  # its activations cannot be kept

    def __getattr__(self, attribute):
        if attribute in _OWN:  # failed in here: the function's own of that name would only hide it
            raise AttributeError(attribute)
        return getattr(self.function, attribute)

    def __repr__(self):
        return "<%r under reprise, segment %s>" % (self.function, self.name)

    @property
    def scope(self):
        """The scope of the forward; made when it is asked for where the extension began it."""
        scope, call = self._scope, self.call  # another thread may release it meanwhile
        if scope is None and call is not None:
            scope = self._scope = self.usual.scope_of(call)
        return scope

    @property
    def generators(self):
        """(state, value) of the generators that go through their API."""
        call = self.call
        return list(zip(self.usual.states, call.values())) if call is not None else self._generators

    def __call__(self, *args, **kwargs):
        if self.phase != NEW:
            call, adapter = self.call, self.adapter
            if call is None or self.reentrant or not (adapter.settled or self.habit in adapter._stop_checked):
                return self.replay(args, kwargs)
            result = call.replay(self, adapter.lock, self.function, args, kwargs, False)
            return self.replay(args, kwargs) if result is NotImplemented else result
        self.begin(args, kwargs)
        self.enter_check()
        try:
            result = self.function(*args, **kwargs)
        except BaseException:
            self.leave_check()
            self.release()
            raise
        self.leave_check()
        self.end()
        return result

    # ---- F ------------------------------------------------------------------------------------------------------------------------------

    def begin(self, args, kwargs):
        """Records the contract. Whatever goes wrong in here is said, and the call runs as without us."""
        self.phase = OPEN
        adapter = self.adapter
        if adapter.plans and not self.replay_only:
            adapter.ranks.begin()
            number, execution, action, status = adapter.engine.forward_begin(self.name, None, (), FORWARD_RETAINED_ONLY)
            if status == OK:
                self.number, self.execution, self.action = number, execution, action
                return
        options = FORWARD_REPLAY_ONLY if self.replay_only else 0
        call = None
        try:
            if self.usual is not None and not kwargs:
                call = self.usual.site.begin(self.function, args, options)
            if call is None:
                scope = adapter.scopes.find(adapter.engine, self.name, self.function, args, kwargs)
                captured = generators.capture(scope.states)
        except Exception as error:
            adapter.unprotected(self.name, "its scope could not be found: %s: %s" % (type(error).__name__, error))
            return
        if call is not None:
            number, self.execution, self.action, status = call.number, call.execution, call.action, call.status
        else:
            number, self.execution, self.action, status = adapter.engine.forward_begin(self.name, scope.packed, scope.extra, options)
        if status == REJECTED:  # the user asked to fail: no plan fits the budget
            raise error_for(status, adapter.engine.last_error())
        if status != OK:
            adapter.unprotected(self.name, adapter.engine.last_error() or "status %d" % status)
            return
        self.number = number
        if call is not None:
            self.call = call
        else:
            self._scope, self._generators = scope, captured
            for state, value in captured:
                adapter.engine.note_generator(number, state.name, *state.raw(value))
        adapter._live[number] = weakref.ref(self)

    def enter_check(self):
        """Once per segment: a dispatch mode around the forward that finds what reflection missed."""
        if self.number and self.adapter.check_scope(self.name, self.function):
            self.check = ScopeCheck({item[0] for item in self.scope.items()})
            self.check.__enter__()

    def leave_check(self):
        if self.check is not None:
            check, self.check = self.check, None
            check.__exit__(None, None, None)
            self.adapter.scope_checked(self.name, check.tensors())

    def end(self):
        self.phase = DONE
        if not self.number:
            return
        if self.adapter.plans and self.scope is not None and not self.replay_only:
            self.statistics = self.scope.statistics()
        if self.reentrant and self.action != RETAIN:
            self.wrote = [set(snapshot.changed()) for _, snapshot in self.scope.python]
        self.adapter.engine.segment_end(self.number, self.execution, self.action)
        if self.action == RETAIN:
            self.release()

    # ---- B ------------------------------------------------------------------------------------------------------------------------------

    def replay(self, args, kwargs):
        if not self.number:
            return self.function(*args, **kwargs)
        if self.released is not None:
            self.adapter.reject(self, RELEASED, "replayed after it was released (%s)" % self.released)
            return self.function(*args, **kwargs)
        if self.adapter.mode == MODE_AUDIT:
            return self._audit(args, kwargs)
        lock = self.adapter.lock
        if not lock.acquire(timeout=self.adapter.settings.wait):
            self.adapter.reject(self, BUSY, "another thread's replay did not end within %d s (REPRISE_WAIT)" % self.adapter.settings.wait)
            return self.function(*args, **kwargs)
        try:
            return self._replay(args, kwargs)
        finally:
            lock.release()

    def _begin_replay(self):
        adapter = self.adapter
        moved = self.scope.moved()
        if moved is not None:
            adapter.reject(
                self,
                REJECTED,
                "the storage of %s was freed, resized or reallocated since the forward (another generation), or the tensor put elsewhere in it, so its "
                "bytes cannot be loaded; keep the buffer in place between forward and backward, or exclude the segment with REPRISE_EXCLUDE" % moved,
            )
        self.replays += 1
        gated = self.reentrant and self.replays == 1 and self.phase == DONE
        _, execution, _, status = adapter.engine.replay_begin(self.name, self.number, REPLAY_GATED if gated else 0)
        if status != OK:
            self._rejected(status)
        return execution, gated

    def _rejected(self, status):
        raise error_for(status, self.adapter.engine.last_error() or "segment %s: the replay was rejected (status %d)" % (self.name, status))

    def _replay(self, args, kwargs):
        adapter = self.adapter
        keep_graph = adapter.compat.keep_graph() if self.reentrant else True
        result = NotImplemented
        if self.reentrant and self.call is not None:
            gated = self.replays == 0 and self.phase == DONE
            self.replays += 1
            result = self.call.replay(self, adapter.lock, self.function, args, kwargs, gated)
            self.replays -= result is NotImplemented
        if result is NotImplemented:
            execution, gated = self._begin_replay()
            result = self._replay_rest(args, kwargs, execution, gated)
        if self.reentrant and not keep_graph and self.phase == DONE:
            self.release()
        return result

    def _replay_rest(self, args, kwargs, execution, gated):
        """A replay that the engine has begun."""
        try:
            replay = _Replay(self, execution, Rollback(self.scope.python), generators.Rewind(self.generators), gated)
        except BaseException:
            self.adapter.engine.replay_end(self.number, execution)
            raise
        try:
            hooks = replay.prepare(args, kwargs)
            if hooks is None:
                result = self.function(*args, **kwargs)
            else:
                with hooks:
                    result = self.function(*args, **kwargs)
        except BaseException as error:
            replay.finish(error)
            raise
        replay.finish(None)
        return result

    def _finish_rest(self, call, error, gated, outcome):
        """The end of a replay that the extension began, and found everything as it was, and that the engine has ended: not everything is so now."""
        scope = self.usual.scope_of(call)
        rewind = generators.Rewind(list(zip(scope.states, call.values())))
        rewind.before = rewind.captured
        _Replay(self, 0, Rollback(scope.python), rewind, gated).finish(error, outcome)

    def _audit(self, args, kwargs):
        """Observes: what would have been replayed on changed state is said, nothing is changed."""
        engine = self.adapter.engine
        for _, snapshot in self.scope.python:
            changed = snapshot.changed()
            if changed:
                say_once(
                    ("audit", self.name),
                    "audit: segment %s is replayed on changed Python state (%s)" % (self.name, "; ".join(describe(snapshot, i) for i in changed[:3])),
                )
        for state, _, _ in generators.differing(self.generators):
            say_once(("audit", self.name, state.name), "audit: segment %s is replayed with generator %s moved on" % (self.name, state.name))
        _, execution, _, status = engine.replay_begin(self.name, self.number, 0)
        try:
            return self.function(*args, **kwargs)
        finally:
            if status == OK:
                engine.replay_end(self.number, execution)

    def harmless(self):
        """Addresses of changed tensors that the forward may have saved all the same, were it kept: autograd would not refuse them."""
        if not self.statistics:
            return ()
        now = dict(self.scope.statistics())
        return {address for address, version in self.statistics if now.get(address) == version}

    # ---- release --------------------------------------------------------------------------------------------------------------------------

    def release(self, why="its backward has run"):
        """No further replays. Safe to call more than once, from any thread."""
        if self.released is not None:
            return
        self.released = why
        self.call, self._scope, self._generators = None, None, ()
        if self.number:
            self.adapter._live.pop(self.number, None)
            self.adapter.engine.release(self.number)

    def __del__(self):
        try:
            self.release("dropped")
        except Exception:  # the interpreter is going down
            pass


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OWN = frozenset(name for name in (*Instance.__slots__, "scope", "generators") if not name.startswith("__"))


def _let_go(trace):
    """What the frames of a stopped function still hold goes as where it returns: within the replay. Destructors (and the `finally` of a generator in
    a local variable) that write state do so as in the forward, on the bytes of then; later they would write the present ones. And at the end of
    the replay there is what its backward needs, no more: so much is what keeping its activations takes. Frames of generators and coroutines are
    left alone: one that hands an exception on may wait for its next value, and would be closed."""
    while trace is not None:
        if not trace.tb_frame.f_code.co_flags & _SUSPENDS:
            try:
                trace.tb_frame.clear()
            except RuntimeError:  # still running: ours
                pass
        trace = trace.tb_next


class _Replay:
    """The two halves of one replay around the function."""

    __slots__ = ("instance", "execution", "rollback", "rewind", "gated", "versions", "early_stop", "copies")

    def __init__(self, instance, execution, rollback, rewind, gated):
        self.instance, self.execution, self.rollback, self.rewind, self.gated = instance, execution, rollback, rewind, gated
        self.versions, self.early_stop, self.copies = (), None, None

    def prepare(self, args, kwargs):
        """Sets Python state and generators; returns the hooks to run under, or None."""
        instance, adapter = self.instance, self.instance.adapter
        try:
            self.rollback.enter()
        except CannotRewind as error:
            adapter.reject(instance, REJECTED, str(error))
        self.rewind.enter()
        dirty = adapter.engine.replay_dirty(self.execution)
        if dirty:
            dirty = self._without_generators(dirty)
        check = None
        if not instance.reentrant and adapter.check_early_stop(instance.habit):
            check = EarlyStopCheck(adapter.compat, {item[0] for item in instance.scope.items()})
            self.early_stop = check if check.usable else None
        if not dirty:
            return _Pushed(self.early_stop.pair) if self.early_stop is not None else None
        if not adapter.compat.hooks_enabled():
            adapter.reject(
                instance,
                REJECTED,
                "saved-tensor hooks are disabled here (a functorch transform?), so tensors that alias changed state cannot be saved with their "
                "old bytes",
            )
            return None
        tensors = instance.scope.tensors() + _tensors_in(args, kwargs)
        self.versions = [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]
        ranges = Ranges(dirty)
        if self.early_stop is None:
            self.copies = SavedCopies(adapter.compat, ranges, instance.harmless())
            return self.copies
        return _Both(_Pushed(self.early_stop.pair), lambda: self._copies(ranges))

    def _copies(self, ranges):
        self.copies = SavedCopies(self.instance.adapter.compat, ranges, self.instance.harmless())
        return self.copies

    def _without_generators(self, dirty):
        regions = [(item[0], item[0] + item[1]) for item in self.instance.scope.items() if item[3] & ITEM_GENERATOR]
        return [(a, n) for a, n in dirty if not any(low <= a and a + n <= high for low, high in regions)]

    def finish(self, error, outcome=None):
        """Puts everything back, whatever happens, then says what went wrong (an exception of the function's own goes first). outcome: what the
        engine has said already."""
        instance, adapter = self.instance, self.instance.adapter
        early = isinstance(error, adapter.compat.stop_error)
        stopped = error is None or early
        status, result = OK, (0, 0, 0, 0)
        if self.copies is not None and self.copies.bytes and not instance.replay_only:
            adapter.engine.note_replay(instance.number, self.copies.bytes)
        try:
            try:
                if early:
                    _let_go(error.__traceback__)
            finally:
                status, result = outcome if outcome is not None else adapter.engine.replay_end(instance.number, self.execution)
        finally:
            try:
                changed = [(t, v) for t, v in self.versions if t._version != v]
                if changed:
                    adapter.compat.set_versions([t for t, _ in changed], [v for _, v in changed])
            finally:
                try:
                    self.rewind.leave()
                finally:
                    self.rollback.leave(instance.wrote if self.gated and error is None else None)
        if self.early_stop is not None:
            adapter.early_stop_checked(instance.habit, stopped and self.early_stop.harmed())
        if not stopped:
            if status != OK:
                say(adapter.engine.last_error())
            return
        self._judge(status, result)

    def _judge(self, status, result):
        instance, adapter = self.instance, self.instance.adapter
        if status != OK:
            message = adapter.engine.last_error() or "segment %s, instance %d: the replay diverged" % (instance.name, instance.number)
            raise DivergedError(message if message.startswith("reprise") else "reprise: " + message)
        _, kept, conflict, _ = result
        if conflict:
            adapter.reject(
                instance,
                REJECTED,
                "its replay updates %d buffers that its forward left alone (an update made only while gradients are on, in "
                "a reentrant checkpoint), and they were changed by others meanwhile; set REPRISE_REENTRANT=convert, or use_reentrant=False"
                % conflict,
            )
        elif kept:
            say_once(
                ("gated", instance.name),
                "segment %s: %d buffers are updated only while gradients are on, that is in the replay of a reentrant checkpoint; the update is "
                "kept (REPRISE_REENTRANT=convert makes it happen in the forward)" % (instance.name, kept),
            )


class _Pushed:
    """A pair of saved-tensor hooks for the time of a block."""

    def __init__(self, pair):
        self.pair = pair

    def __enter__(self):
        autograd._push_saved_tensors_default_hooks(*self.pair)

    def __exit__(self, *unused):
        autograd._pop_saved_tensors_default_hooks()


class _Both:
    """Two blocks, the second made inside the first (it forwards to what is on top then)."""

    def __init__(self, outer, make_inner):
        self.outer, self.make_inner, self.inner = outer, make_inner, None

    def __enter__(self):
        self.outer.__enter__()
        self.inner = self.make_inner()
        self.inner.__enter__()

    def __exit__(self, *unused):
        self.inner.__exit__()
        self.outer.__exit__()
