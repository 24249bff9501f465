"""``python -m testbed.standalone server | evaluator | worker``: one role of an experiment."""

import argparse
import os
import sys
from pathlib import Path

from testbed.errors import TestbedError
from testbed.standalone.messages import secret_of


def main() -> int:
    """Run the role that the arguments name; return the exit status."""
    options = _arguments().parse_args()
    secret = secret_of(os.environ.get("TESTBED_SECRET"))

    def ready() -> None:
        if options.ready is not None:
            options.ready.touch()

    def say(text: str) -> None:
        print(text, flush=True)

    if options.role == "server":
        from testbed.standalone.server_process import serve

        return serve(options.experiment, options.results, secret, ready, say)
    from testbed.standalone.device import SuperfluousError, join, stand_by, take_part

    try:
        admitted = join(options.server, options.role, secret)
    except SuperfluousError as error:
        say(f"{error}; it waits until the run is over")
        ready()
        stand_by(options.server)
        return 0
    say(
        f"{options.role}: admitted" + (f" as {admitted.number}" if options.role == "worker" else "")
    )
    return take_part(admitted, options.role, ready)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m testbed.standalone",
        description="Run one role of an experiment without an orchestrator. All roles need the same "
        "secret in TESTBED_SECRET, and the dataset in the same place.",
    )
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser(
        "server", help="admit the other roles, serve parameters, write the results"
    )
    server.add_argument("experiment", type=Path, help="the experiment file")
    server.add_argument(
        "--results", type=Path, default=Path("results"), help="the folder of the results"
    )
    evaluator = roles.add_parser("evaluator", help="measure the accuracy while the workers train")
    worker = roles.add_parser("worker", help="compute gradients")
    for role in (evaluator, worker):
        role.add_argument("--server", default="localhost", help="the server's name or address")
    for role in (server, evaluator, worker):
        role.add_argument("--ready", type=Path, help="a file to make once ready, for health checks")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
