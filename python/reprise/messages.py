"""What the adapters say on stderr: one line, what happened, where, what to do; each thing once."""

import sys

_said = set()


def say(text):
    stream = sys.stderr
    if stream is not None:
        try:
            stream.write("reprise: %s\n" % text)
            stream.flush()
        except (OSError, ValueError):  # a closed stderr
            pass


def say_once(key, text):
    """Says `text` the first time that `key` is given in this process."""
    if key not in _said:
        _said.add(key)
        say(text)


def forget():
    """For tests: everything may be said again."""
    _said.clear()
