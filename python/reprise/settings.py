"""What the environment says about the adapters. Read once, at import; `read` again in tests."""

import os
import sys


def _patterns(name):
    return tuple(part.strip() for part in os.environ.get(name, "").split(",") if part.strip())


def _number(name, default):
    text = os.environ.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
        if value > 0:
            return value
    except ValueError:
        pass
    sys.stderr.write("reprise: %s=%r is not a positive number; using %d\n" % (name, text, default))
    return default


class Settings:
    """convert: reentrant calls run as non-reentrant. include, exclude: patterns of module and segment names. keep_steps: optimizer steps after
    which an instance that was never released is dropped. wait: seconds that a replay waits for another thread's. calibrate: check scope
    and early stop in each segment's first execution."""

    def __init__(self):
        self.read()

    def read(self):
        form = os.environ.get("REPRISE_REENTRANT", "keep")
        if form not in ("keep", "convert"):
            sys.stderr.write("reprise: REPRISE_REENTRANT=%r is neither keep nor convert; using keep\n" % form)
        self.convert = form == "convert"
        self.include = _patterns("REPRISE_INCLUDE")
        self.exclude = _patterns("REPRISE_EXCLUDE")
        self.keep_steps = _number("REPRISE_KEEP_STEPS", 8)
        self.wait = _number("REPRISE_WAIT", 60)
        self.calibrate = os.environ.get("REPRISE_CALIBRATE", "1") != "0"
        return self


settings = Settings()
