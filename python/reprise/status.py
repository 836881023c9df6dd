"""Statuses and item flags of the engine, and the errors that the adapters raise. Mirrors include/reprise/reprise.h and detail/engine_abi.h."""

OK = 0
INVALID_ARGUMENT = 1
UNKNOWN_INSTANCE = 2
RELEASED = 3
WRONG_STATE = 4
REJECTED = 5
DIVERGED = 6
BUSY = 7
OUT_OF_MEMORY = 8
UNAVAILABLE = 9
NOT_FOUND = 10
INTERNAL = 11

RETAIN = 0
REPLAY = 1

ITEM_PARAMETER = 1
ITEM_ARGUMENT = 2
ITEM_GENERATOR = 4

REPLAY_GATED = 1
FORWARD_REPLAY_ONLY, FORWARD_RETAINED_ONLY = 1, 2

MODE_OFF = 0
MODE_AUDIT = 1
MODE_PROTECT = 2
MODE_PLAN = 3  # protect, and forwards may be retained

NAME_MAX = 255  # bytes, without the terminating zero


class RepriseError(RuntimeError):
    """A call of the library failed; `status` says how."""

    def __init__(self, message, status=INTERNAL):
        super().__init__(message)
        self.status = status


class RejectedError(RepriseError):
    """A replay could not be made right, so it was not run (or what it did was not what the forward did)."""

    def __init__(self, message, status=REJECTED):
        super().__init__(message, status)


class DivergedError(RejectedError):
    """A replay ran and wrote what the forward had not written; its state was put back."""

    def __init__(self, message):
        super().__init__(message, DIVERGED)


def error_for(status, message):
    """The exception that stands for a status other than OK."""
    if not message.startswith("reprise"):
        message = "reprise: " + message
    if status == DIVERGED:
        return DivergedError(message)
    if status in (REJECTED, RELEASED, BUSY, UNKNOWN_INSTANCE, OUT_OF_MEMORY):
        return RejectedError(message, status)
    return RepriseError(message, status)


def clip_name(name):
    """A name the library accepts: printable and at most NAME_MAX bytes, the end kept (it tells more than the beginning)."""
    if len(name) <= 60 and name.isascii() and name.isprintable():
        return name
    name = "".join(c if c.isprintable() else "?" for c in name)
    raw = name.encode("utf-8", "replace")
    return name if len(raw) <= NAME_MAX else "..." + raw[-(NAME_MAX - 3):].decode("utf-8", "ignore")
