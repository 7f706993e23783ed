"""The command line: flags of the process only. Everything about pools travels in Envoy's configuration."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tidegate import __version__
from tidegate.arguments import add_log_level, number
from tidegate.errors import OperatorError

EXIT_OPERATOR_ERROR = 2

_SERVE_EPILOG = """\
All settings of a pool (capacity, queue, budgets, tenants) are tidegate-* keys in the initial metadata of the filter in
envoy.yaml; envoy/README.md lists every one. On SIGTERM or SIGINT whoever waits gets a verdict or a 503 that says
"shutting_down", running answers go on, the books are saved, and the process exits 0 after --grace-s seconds at the
latest. Exit codes: 0 stopped as asked, 2 a flag that cannot be used.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = build_parser(loaded=words[0] if words else "").parse_args(words)
        return int(arguments.run(arguments))
    except OperatorError as error:
        print(f"tidegate: {error}", file=sys.stderr)
        return EXIT_OPERATOR_ERROR


def build_parser(*, loaded: str) -> argparse.ArgumentParser:
    """The parser of all commands; only the group `loaded` (sim, ...) has its own, which take time to load."""
    parser = _Parser(prog="tidegate", description="Admission control and queueing for LLM inference behind Envoy.")
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    sim = commands.add_parser("sim", help="simulated engine, demo and playground")
    if loaded == "sim":
        _add_sim(sim)
    estimator = commands.add_parser("estimator", help="train, evaluate and inspect what predicts the length of answers")
    if loaded == "estimator":
        _add_estimator(estimator)
    agent = commands.add_parser(
        "agent",
        help="tell the memory and utilisation of a node's GPUs",
        description="Tell memory and utilisation of this node's GPUs, for `tidegate-engine: gpu-agent` and Prometheus.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if loaded == "agent":
        _add_agent(agent)
    return parser


def _add_serve(commands: "argparse._SubParsersAction[_Parser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="answer Envoy's external-processing streams",
        description="Answer Envoy's external-processing streams and take in its access log.",
        epilog=_SERVE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve.add_argument(
        "--listen",
        default="127.0.0.1:9002",
        metavar="ADDRESS",
        help="gRPC address for Envoy: HOST:PORT or unix:PATH; port 0 takes a free one (default %(default)s). "
        "It has no authentication: let only Envoy reach it",
    )
    serve.add_argument(
        "--ops-listen",
        default="127.0.0.1:9003",
        metavar="HOST:PORT",
        help="address of /metrics and /healthz (default %(default)s)",
    )
    serve.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="keep pools, books and what was learned here over a restart (default: forget)",
    )
    serve.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help="key that seals what access logs carry of a request, 32 bytes as base64; replicas that are to learn from "
        "each other's requests share it (default: one of its own, drawn at start)",
    )
    serve.add_argument(
        "--engine-allow",
        metavar="LIST",
        default=None,
        help="addresses that engines' metrics pages are asked for at: CIDRs, IP addresses and DNS suffixes such as "
        ".svc.cluster.local, commas between them (default: loopback and the private ranges)",
    )
    serve.add_argument(
        "--grace-s",
        type=number(0.0, 3600.0),
        default=25.0,
        metavar="SECONDS",
        help="after SIGTERM, running answers are watched for at most this long (default %(default)g); "
        "keep it below Kubernetes' terminationGracePeriodSeconds",
    )
    serve.add_argument(
        "--body-mib-max",
        type=number(1.0, 512.0),
        default=32.0,
        metavar="MIB",
        help="largest request body taken in (default %(default)g); not below Envoy's own request_body_buffer_limit",
    )
    add_log_level(serve)
    serve.add_argument(
        "--request-log",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="one JSON line per finished request (default on)",
    )
    serve.set_defaults(run=_serve)


def _add_sim(sim: argparse.ArgumentParser) -> None:
    try:
        from tidegate.sim import commands  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise OperatorError(f"`tidegate sim` needs {error.name}: pip install 'tidegate[sim]'") from error
    commands.add_to(sim.add_subparsers(required=True, metavar="COMMAND"))


def _add_estimator(estimator: argparse.ArgumentParser) -> None:
    from tidegate.estimator_command import commands  # noqa: PLC0415  keeps --help and --version quick

    commands.add_to(estimator.add_subparsers(required=True, metavar="COMMAND"))


def _add_agent(agent: argparse.ArgumentParser) -> None:
    from tidegate.agent import commands  # noqa: PLC0415  keeps --help and --version quick

    agent.epilog = commands.EPILOG
    commands.add_to(agent)


def _serve(arguments: argparse.Namespace) -> int:
    # gRPC's own lines on stderr are no JSON, and what matters of them is raised and told by us.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tidegate.app import Settings, serve  # noqa: PLC0415  keeps --help and --version quick
    from tidegate.signals.allow import ENGINE_ALLOW  # noqa: PLC0415

    return serve(
        Settings(
            engine_allow=ENGINE_ALLOW if arguments.engine_allow is None else arguments.engine_allow,
            listen=arguments.listen,
            ops_listen=arguments.ops_listen,
            state_dir=arguments.state_dir,
            key_file=arguments.key_file,
            grace_s=arguments.grace_s,
            body_bytes_max=int(arguments.body_mib_max * 1024 * 1024),
            log_level=arguments.log_level,
            request_log=arguments.request_log,
        )
    )


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others of this program."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_OPERATOR_ERROR, f"{self.prog}: {message} (see {self.prog} --help)\n")
