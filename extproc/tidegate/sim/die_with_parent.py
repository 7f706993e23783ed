"""Become another program that the kernel kills when the process that asked for it dies.

Run as a script: `python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT]...`. The wish (PR_SET_PDEATHSIG) outlives
exec, so the process id is the program's own from start to end. A script rather than a `preexec_fn`, because Python code
between fork and exec may deadlock where other threads run, as gRPC's do.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask the kernel, make sure that the parent has not died before that, and become the program."""
    parent_pid, program = int(arguments[0]), arguments[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        raise SystemExit("the parent is gone already")
    os.execvp(program[0], program)  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
