"""The measured jobs answer commands, so that two of them can take turns: "run N" does N iterations and answers with the seconds of each."""

import gc
import json
import sys
import time


def serve(iteration, warm=0, answer=None):
    """iteration(): what is timed. warm: iterations before the first command. answer(): called for "report"."""
    for _ in range(warm):
        iteration()
    gc.collect()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "run":
            seconds = []
            for _ in range(int(words[1])):
                began = time.perf_counter()
                iteration()
                seconds.append(time.perf_counter() - began)
            reply = {"seconds": seconds}
        elif words[0] == "report" and answer is not None:
            reply = answer()
        else:
            sys.exit("not a command: " + line)
        print(json.dumps(reply), flush=True)
