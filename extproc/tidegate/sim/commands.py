"""`tidegate sim ...`: mounts the commands of this package on the command line."""

import argparse

from tidegate.sim import demo, engine_server, up


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add every command of the simulation."""
    engine = commands.add_parser("engine", help="an OpenAI-compatible simulated engine")
    engine_server.add_engine_arguments(engine)
    engine.set_defaults(run=engine_server.run_engine)
    story = commands.add_parser("demo", help="the same overload with and without Tidegate, side by side")
    demo.add_demo_arguments(story)
    story.set_defaults(run=demo.run_demo)
    playground = commands.add_parser("up", help="leave Envoy, Tidegate and a simulated engine running")
    up.add_up_arguments(playground)
    playground.set_defaults(run=up.run_up)
