"""Ranks of a distributed job take the same decisions: a collective inside a checkpointed segment would hang if one rank replayed it and another
had kept its activations. Measurements travel through the process group's store, at optimizer steps, and nothing here ever waits: a rank that is
late or dead leaves the others replaying everything, which is always right."""

import ctypes
import sys

from reprise.messages import say, say_once

JOIN, OFFER, OFFERS, COUNTS, ALL_COUNTS, COMMIT = range(6)
NOTHING, OFFERED, PLANNING, COUNTED, COMMITTING, DONE = range(6)
REFUSED = b"no"


class Ranks:
    """One process's side of the agreement. `exchange(stage, texts)` is the engine's: it returns bytes or None."""

    def __init__(self, exchange):
        self.exchange, self.state = exchange, NOTHING
        self.store, self.rank, self.world = None, 0, 1

    def begin(self):
        """Before a forward that a plan may decide about: of accumulated gradients many come before the first step, and a rank that had
        planned alone by then would retain what the others replay."""
        if self.store is None and self.state != DONE:
            self._try(self._join)

    def step(self):
        """After an optimizer step."""
        if self.state != DONE:
            self._try(self._step)

    def _try(self, part):
        try:
            part()
        except Exception as error:  # the store is gone, or is of a kind that we do not know
            self.state = DONE
            say_once("ranks", "the ranks cannot agree on a plan (%s: %s); all segments are replayed" % (type(error).__name__, error))

    def _step(self):
        if self.store is not None or self._join():
            self._advance()

    def _join(self):
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
            return False
        self.exchange(JOIN, ())  # first: whatever fails from here on, this process does not plan alone
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.store = distributed.PrefixStore("reprise/plan", distributed.distributed_c10d._get_default_store())
        return True

    def _publish(self, stage, text):
        self.store.set("%d/%d" % (stage, self.rank), text)
        self.store.add("%d/count" % stage, 1)

    def _all(self, stage):
        """What all ranks published, by rank; None while one is missing."""
        if self.store.add("%d/count" % stage, 0) < self.world:
            return None
        return [self.store.get("%d/%d" % (stage, rank)) for rank in range(self.world)]

    def _advance(self):
        if self.state == NOTHING:
            mine = self.exchange(OFFER, ())
            if mine is not None:
                self._publish(OFFER, mine)
                self.state = OFFERED
        elif self.state == OFFERED:
            offers = self._all(OFFER)
            if offers is not None:
                self.state = PLANNING
                if self.exchange(OFFERS, offers) is None:
                    self._publish(COUNTS, REFUSED)
                    self.state = COUNTED
        elif self.state == PLANNING:
            mine = self.exchange(COUNTS, ())
            if mine is not None:
                self._publish(COUNTS, mine)
                self.state = COUNTED
        elif self.state == COUNTED:
            counts = self._all(COUNTS)
            if counts is not None:
                self._publish(COMMIT, REFUSED if self.exchange(ALL_COUNTS, counts) is None else b"yes")
                self.state = COMMITTING
        elif self.state == COMMITTING:
            answers = self._all(COMMIT)
            if answers is not None:
                self.state = DONE
                if REFUSED in [bytes(answer) for answer in answers]:
                    say("the ranks did not agree on a plan in time; all segments are replayed")
                else:
                    self.exchange(COMMIT, ())


def exchange_of(table):
    """The engine's plan_exchange as a function of a stage and texts."""

    def exchange(stage, texts):
        count = len(texts)
        pointers = (ctypes.c_char_p * max(1, count))(*[bytes(text) for text in texts])
        sizes = (ctypes.c_size_t * max(1, count))(*[len(text) for text in texts])
        size = ctypes.c_size_t()
        reply = table.plan_exchange(stage, pointers, sizes, count, ctypes.byref(size))
        return ctypes.string_at(reply, size.value) if reply else None

    return exchange
