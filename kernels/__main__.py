"""``python -m kernels``: fetch kernels, boot them, and run the tests that need them."""

import argparse
import sys
import time

from kernels import debian, machine, results
from kernels.in_guest import REPOSITORY, TWO_GUESTS, run_tests
from testbed.errors import SpecError, TestbedError

CACHE = REPOSITORY / ".kernels"
LIMIT = 3600.0
"""Seconds that one kernel may take."""


def main() -> int:
    """Run the command line; return the exit status."""
    options = _arguments().parse_args()
    names = options.kernel.split(",")
    for name in names:
        if name not in debian.KERNELS:
            raise SpecError(f"there is no kernel {name!r}: use {' or '.join(debian.KERNELS)}")
    failed = False
    for name in names:
        kernel = debian.KERNELS[name]
        ready = debian.unpacked(kernel, CACHE)
        if ready is None:
            machine.check()
            print(f"{kernel.title}: fetching its kernel", flush=True)
            ready = debian.fetch(kernel, CACHE, options.mirror)
        if options.what == "fetch":
            print(f"{kernel.title}: {ready.version} is in {ready.folder}")
            continue
        print(f"{kernel.title}: booting {ready.version}", flush=True)
        began = time.monotonic()

        def show(line: str, began: float = began) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

        needs_two = [one for one in options.test or [TWO_GUESTS] if one.startswith(TWO_GUESTS)]
        needs_one = [one for one in options.test or ["tests/kernels"] if one not in needs_two]
        for tests in filter(None, (needs_one, needs_two)):
            tested = run_tests(
                ready, sys.executable, tests, options.limit, show, two=tests is needs_two
            )
            print(f"\n{kernel.title} ({tested.version}), {tested.seconds:.0f} s\n")
            for result in tested.results:
                outcome = f"{result.outcome:<8} {result.seconds:6.1f} s  {result.name}"
                print(f"{outcome}  {result.why[:100]}")
            print(f"\n{results.table(tested.results)}\n", flush=True)
            failed = failed or bool(tested.failed) or not tested.results
    return int(failed)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m kernels", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    fetch = what.add_parser("fetch", help="download and unpack kernels")
    test = what.add_parser("test", help="run tests in kernels, which are fetched if necessary")
    known = ", ".join(debian.KERNELS)
    for command in (fetch, test):
        command.add_argument("kernel", help=f"kernels, separated by commas: {known}")
        command.add_argument("--mirror", help=f"the packages' mirror; default: {debian.MIRROR}")
    test.add_argument("--limit", type=float, default=LIMIT, help="seconds for each kernel")
    test.add_argument(
        "--test", action="append", help="an argument for pytest; default: tests/kernels"
    )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TestbedError as error:
        print(f"kernels: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
