"""The usual checkpoint call in the extension (extension/call.c), and every way out of it, on the native engine under the preload."""

import pathlib

import pytest

from test_attach import run

JOB = str(pathlib.Path(__file__).parent / "jobs" / "usual.py")
WAYS = (
    "nothing_changed weight_changed attribute_changed generator_moved counted_once only_the_replay_writes replay_fails storage_replaced moved_in_storage "
    "arguments many_arguments many_changes structure_changed own_generator another_thread_replays threads numpy_comes bit_generator_replaced "
    "foreign_storage many_anchors nothing_leaks"
)


@pytest.mark.parametrize("form", ("nonreentrant", "reentrant"))
def test_usual_calls_and_the_ways_out_of_them(build, form):
    done = run(build, JOB, form, check=False)
    assert "UNPROTECTED" not in done.stderr, done.stderr[-3000:]
    assert done.stdout.split() == WAYS.split() and done.returncode == 0, done.stderr[-3000:]
