#!/usr/bin/env python3
"""The planner's speed against HiGHS (one thread, gap 0, strong formulation): CPU time, ratios as geometric means over problems that either solves.

    bench/planner_highs.py [--tool PATH] [--seeds 3] [--instances 200] [--buffers 20] [--limit 60] [--families a,b]

Needs PyPI's highspy. A HiGHS run that ends at the limit counts with the limit.
"""

import argparse
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tests", "planner"))
FAMILIES = "transformer,resnet,moe,queue,perseg,vq,gradacc,1f1b,random"


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main():
    from highs_model import Model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=os.path.join(ROOT, "build", "release", "tests", "planner", "planner_problem"))
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--buffers", type=int, default=20)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--families", default=FAMILIES)
    options = parser.parse_args()
    every, mismatches = [], 0
    for family in options.families.split(","):
        ratios = []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for tightness in (0.15, 0.4, 0.7):
                command = [options.tool, family, str(seed), str(options.instances), str(options.buffers), str(tightness)]
                case = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                ours, theirs = case["answer"], Model(case["problem"]).solve(options.limit)
                solved = ours["proof"] == "exact" or theirs["status"] == "optimal"
                both = ours["proof"] == "exact" and theirs["status"] == "optimal"
                mismatches += both and abs(theirs["objective"] - ours["objective_ns"]) > 1 + 1e-7 * ours["objective_ns"]
                ratio = theirs["cpu_seconds"] / max(case["cpu_seconds"], 1e-6)
                if solved:
                    ratios.append(ratio)
                print("%-11s seed %d at %.2f: ours %.3f s %s %d, HiGHS %.2f s %s %s, ratio %.1f" % (
                    family, seed, tightness, case["cpu_seconds"], ours["proof"], ours["objective_ns"], theirs["cpu_seconds"], theirs["status"],
                    theirs["objective"], ratio), flush=True)  # fmt: skip
        if ratios:
            print("%-11s %d problems, %.1f x (least %.1f)" % (family, len(ratios), mean(ratios), min(ratios)), flush=True)
        every += ratios
    print("all: %d problems, %.1f x, %d mismatches" % (len(every), mean(every), mismatches))
    return mismatches != 0


if __name__ == "__main__":
    sys.exit(main())
