"""Reads times in seconds from stdin, looks at the GPUs at each, and writes what it found: one JSON line a look."""

import sys

import msgspec

from tidegate.agent.nvml import Nvml
from tidegate.agent.watch import Watch
from tidegate.agent.window import Window


def main() -> None:
    watch = Watch(Nvml(), lambda: Window(10.0, 101))
    for line in sys.stdin:
        print(msgspec.json.encode(watch.look(float(line))).decode(), flush=True)
    watch.close()


if __name__ == "__main__":
    main()
