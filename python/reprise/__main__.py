"""python -m reprise [options] program.py args...

Runs a Python program under Reprise, for where LD_PRELOAD cannot be set from outside: sets it and starts the interpreter anew in its place.
"""

import argparse
import os
import sys

from reprise import library

EPILOG = """Settings are environment variables: REPRISE_POLICY (whole, selective, audit, off), REPRISE_ON_REJECT (fail, warn), REPRISE_REENTRANT (keep,
convert), REPRISE_INCLUDE and REPRISE_EXCLUDE (patterns of module names), REPRISE_RECORDS, REPRISE_LOG. -m runs a module, -c a command, as with
python itself."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m reprise", description=__doc__.split("\n\n")[1], epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", metavar="PATH", help="libreprise.so (default: the one beside this package)")
    parser.add_argument("--policy", help="sets REPRISE_POLICY")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module; what follows are its arguments")
    parser.add_argument("-c", dest="command", metavar="COMMAND", help="run a command; what follows are its arguments")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="program.py args...", help="the program and its arguments")
    options = parser.parse_args(_before_program(arguments))
    if not (options.program or options.module or options.command):
        parser.error("no program given")
    return parser, options


def _before_program(arguments):
    """With -m and -c everything behind the value is the program's, options too."""
    for flag in ("-m", "-c"):
        if flag in arguments:
            at = arguments.index(flag)
            if all(a.startswith("-") or arguments[i - 1] in ("--library", "--policy") for i, a in enumerate(arguments[:at])):
                return arguments[: at + 2] + ["--"] + arguments[at + 2 :] if len(arguments) > at + 2 else arguments
    return arguments


def environment(options, path):
    env = dict(os.environ)
    others = [entry for entry in env.get("LD_PRELOAD", "").replace(":", " ").split() if os.path.basename(entry) != library.SONAME]
    env["LD_PRELOAD"] = ":".join([path, *others])  # first: the allocator that comes first serves the job
    if options.policy:
        env["REPRISE_POLICY"] = options.policy
    return env


def main(arguments=None):
    parser, options = parse(sys.argv[1:] if arguments is None else arguments)
    path = options.library or library.find()
    if path is None or not os.path.isfile(path):
        parser.error("%s not found%s; name it with --library" % (library.SONAME, " at " + path if path else " beside this package"))
    program = [a for i, a in enumerate(options.program) if not (i == 0 and a == "--")]
    if options.module:
        program = ["-m", options.module, *program]
    elif options.command:
        program = ["-c", options.command, *program]
    flags = _interpreter_flags()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *flags, *program], environment(options, os.path.abspath(path)))


def _interpreter_flags():
    """The interpreter's own options (-O, -W, -X and so on) go on to the new one."""
    import subprocess

    return subprocess._args_from_interpreter_flags()


if __name__ == "__main__":
    main()
