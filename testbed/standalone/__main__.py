"""``python -m testbed.standalone server | shard | evaluator | worker``: one role of an experiment."""

import argparse
import os
import sys
from pathlib import Path

from testbed.device_names import server_index
from testbed.display.standard_streams import command, tell
from testbed.errors import RunError
from testbed.standalone.messages import secret_of


def main() -> int:
    """Run the role that the arguments name; return the exit status, or end with that of an error."""
    with command("testbed"):
        return _carry_out()


def _carry_out() -> int:
    options = _arguments().parse_args()
    secret = secret_of(os.environ.get("TESTBED_SECRET"))

    def ready() -> None:
        if options.ready is not None:
            options.ready.touch()

    def say(text: str) -> None:
        tell(text, output=True)

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
    named = {
        "worker": f" as {admitted.number}",
        "shard": f" as server {server_index(admitted.number)}",
    }
    say(f"{options.role}: admitted{named.get(options.role, '')}")
    return take_part(admitted, options.role, ready, _give_up)


def _give_up(reason: str) -> None:
    """End the process at once, from any thread: its role waits for messages that will not come."""
    tell(f"testbed: {reason}")
    os._exit(RunError.exit_status)


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
    shard = roles.add_parser(
        "shard",
        help="serve a part of the parameters, of several servers (devices.servers): one process for "
        "each but the first, on a host or in a container of its own",
    )
    evaluator = roles.add_parser("evaluator", help="measure the accuracy while the workers train")
    worker = roles.add_parser("worker", help="compute gradients")
    for role in (shard, evaluator, worker):
        role.add_argument(
            "--server", default="localhost", help="the (first) server's name or address"
        )
    for role in (server, shard, evaluator, worker):
        role.add_argument("--ready", type=Path, help="a file to make once ready, for health checks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
