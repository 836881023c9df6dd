"""What the instances of one process share: the engine, this torch's functions, scopes, names, what was calibrated, who is alive."""

import threading

from reprise.messages import say, say_once
from reprise.pytorch.calibrate import may_check
from reprise.pytorch.instance import Instance
from reprise.pytorch.names import SegmentNames, unwrap
from reprise.pytorch.ranks import Ranks, exchange_of
from reprise.pytorch.scope import Scopes
from reprise.status import MODE_OFF, MODE_PLAN, MODE_PROTECT, OK, error_for


class Adapter:
    """`engine`: see reprise/engine.py. `calibrate` off leaves the checks of a segment's first execution out."""

    def __init__(self, engine, compat, settings, calibrate=True):
        self.engine, self.compat, self.settings = engine, compat, settings
        mode = engine.mode()
        self.mode, self.plans = min(mode, MODE_PROTECT), mode == MODE_PLAN
        self.scopes = Scopes()
        self.names = SegmentNames(settings.include, settings.exclude)
        self.lock = threading.RLock()
        self.steps = 0  # rounds of optimizer steps: see `step`
        self._stepped = set()  # ids of the optimizers that have stepped in this round
        self.ranks = Ranks(exchange_of(engine.table)) if self.plans else None
        self._live = {}  # engine's number -> weak reference, oldest first
        self._calibrate = calibrate and settings.calibrate and self.mode == MODE_PROTECT
        self.settled = not self._calibrate  # nothing is checked in first executions
        self._scope_checked = set()
        self._stop_checked = set()
        self._no_early_stop = set()

    def wrap(self, function, reentrant):
        """An instance for this checkpoint call, or None when it is to run as without us."""
        if self.mode == MODE_OFF:
            return None
        usual = self.scopes.usual(function) if self.mode == MODE_PROTECT else None
        if usual is not None:
            return Instance(self, function, usual.segment, reentrant, usual)
        name = self.names.name(function)
        return None if name is None else Instance(self, function, name, reentrant)

    # ---- calibration --------------------------------------------------------------------------------------------------------------------

    def check_scope(self, name, function):
        if not self._calibrate or name in self._scope_checked:
            return False
        self._scope_checked.add(name)
        target, captured = unwrap(function)
        return may_check([target, *captured])

    def scope_checked(self, name, missed):
        if missed:
            self.scopes.add_hidden(name, missed)
            shapes = ", ".join("x".join(map(str, t.shape)) or "scalar" for t in missed[:4])
            say_once(
                ("hidden", name),
                "segment %s uses %d tensors that are not reachable from it (%s): they are protected from its next forward on" % (name, len(missed), shapes),
            )

    # `habit`: a segment's name, and whether it is in training (Instance.habit).
    def check_early_stop(self, habit):
        return self._calibrate and habit not in self._stop_checked

    def early_stop(self, habit):
        """False where the replay must not stop early, None where torch's own rule stands."""
        return False if habit in self._no_early_stop or self.check_early_stop(habit) else None

    def early_stop_checked(self, habit, harmed):
        self._stop_checked.add(habit)
        if harmed:
            self._no_early_stop.add(habit)
            say_once(("stop", habit), "segment %s saves a tensor before it is filled; its replays are no longer stopped early" % habit[0])

    # ---- trouble ----------------------------------------------------------------------------------------------------------------------------

    def reject(self, instance, kind, message):
        """Raises, unless the policy is to warn (the engine has said it then; it names the segment)."""
        status = self.engine.report(instance.number, kind, message)
        if status != OK:
            raise error_for(status, "segment %s, instance %d: %s" % (instance.name, instance.number, message))

    def unprotected(self, name, why):
        say_once(("unprotected", name), "segment %s runs UNPROTECTED: %s" % (name, why))

    # ---- who is alive -----------------------------------------------------------------------------------------------------------------------

    def outstanding(self):
        return len(self._live)

    def step(self, optimizer=None):
        """After an optimizer step: the engine counts it, and instances that nobody will replay any more are let go. Their age counts rounds:
        where every parameter has an optimizer of its own, one backward makes hundreds of steps, before the replays of its first layers."""
        self.engine.step()
        if self.ranks is not None:
            self.ranks.step()
        if self._stepped and id(optimizer) not in self._stepped:
            self._stepped.add(id(optimizer))
            return
        self._stepped = {id(optimizer)}
        self.steps += 1
        old = self.steps - self.settings.keep_steps
        dropped = 0
        for reference in list(self._live.values()):
            instance = reference()
            if instance is None:
                continue
            if instance.step > old:
                break
            instance.release("its forward is more than %d optimizer steps ago; REPRISE_KEEP_STEPS=N keeps them longer" % self.settings.keep_steps)
            dropped += 1
        if dropped:
            say_once(
                "old",
                "%d checkpoints were neither replayed nor dropped for %d optimizer steps (is a list of losses kept?); what was preserved for them "
                "is released, and for later ones after as many steps (REPRISE_KEEP_STEPS)" % (dropped, self.settings.keep_steps),
            )


def refuse(version, why):
    """This torch is not one that the adapter knows."""
    say("torch %s is not known to this adapter (%s); checkpoints run UNPROTECTED" % (version, why))
