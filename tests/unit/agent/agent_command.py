"""`tidegate agent` alone, as a process."""

import argparse
import sys

from tidegate.agent import commands


def main() -> int:
    parser = argparse.ArgumentParser()
    commands.add_to(parser)
    return int(commands.run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
