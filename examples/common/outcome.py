"""What a training script leaves behind for whoever compares runs: gradients and final state, byte for byte, and times and memory.

Nothing here knows of Reprise.
"""

import json
import os
import resource
import time

import numpy as np
import torch


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Outcome:
    def __init__(self, steps, turns=None):
        self.arrays, self.losses, self.times, self.steps, self.turns = {}, [], [], steps, turns
        self.start = resident()
        self._wait_for_turn()

    @staticmethod
    def add_arguments(parser):
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--threads", type=int, default=0, help="0: torch's default")
        parser.add_argument("--out", help="write the gradients of the first and the last step and the final state here (.npz)")
        parser.add_argument("--report", help="write times and memory here (.json)")
        parser.add_argument("--no-evaluation", action="store_true", help="do not look, at the end, at how well it has learned")
        parser.add_argument("--turns", nargs=2, type=int, metavar=("READ", "WRITE"),
                            help="descriptors: write a byte to WRITE when ready for a step and after the last, read one from READ before each step; "
                                 "so several runs can take turns")  # fmt: skip
        parser.add_argument("--count-changes", action="store_true",
                            help="with --no-checkpoint: compare, byte by byte, what a segment reads when its forward begins and when its "
                                 "backward begins (slow; for itself, not for timing)")  # fmt: skip

    @staticmethod
    def begin(parser, options):
        """What every job does with those arguments before anything else."""
        if options.count_changes and not options.no_checkpoint:
            parser.error("--count-changes goes with --no-checkpoint: a replay would change what is counted")
        if options.threads:
            torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)

    def _wait_for_turn(self):
        if self.turns is None:
            return
        os.write(self.turns[1], b".")
        if len(self.times) < self.steps and not os.read(self.turns[0], 1):
            raise SystemExit("whoever gives turns has gone")

    def gradients(self, model):
        """After a backward: kept for the first and the last step."""
        step = len(self.times)
        if step in (0, self.steps - 1):
            name = "first" if step == 0 else "last"
            self.arrays.update({"%s gradient/%s" % (name, n): p.grad.numpy().copy() for n, p in model.named_parameters() if p.grad is not None})

    def step(self, began, loss):
        self.times.append(time.perf_counter() - began)
        self.losses.append(loss)
        step = len(self.times)
        if step % 10 == 0 or step == self.steps:
            recent = sorted(self.times[-10:])
            print("step %d: loss %.4f, %.0f ms" % (step, loss, 1e3 * recent[len(recent) // 2]), flush=True)
        self._wait_for_turn()

    def end(self, modules, optimizer):
        """After the last step. `modules`: prefix -> module."""
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        for prefix, module in modules.items():
            self.arrays.update({"state/%s.%s" % (prefix, n): t.numpy() for n, t in module.state_dict().items()})
        for i, state in optimizer.state_dict()["state"].items():
            self.arrays.update({"state/optimizer.%s.%d" % (n, i): t.numpy() for n, t in state.items() if isinstance(t, torch.Tensor)})

    def write(self, options, **more):
        if options.out:
            np.savez(options.out, losses=np.array(self.losses), **self.arrays)
        if options.report:
            report = dict(step_seconds=self.times, losses=self.losses, start_bytes=self.start, peak_bytes=self.peak,
                          torch=torch.__version__, threads=torch.get_num_threads(), **more)  # fmt: skip
            with open(options.report, "w") as file:
                json.dump(report, file, indent=1)
