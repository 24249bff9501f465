"""``python -m images``: make the base image, the wheels or the image."""

import argparse
import sys
import time
from pathlib import Path

from images.base import BASE_IMAGE, make_base
from images.build import WHEELS, build, choose_base, target_of
from images.engine import connect
from images.wheels import prepare
from testbed.containers.engine import answering
from testbed.containers.image import default_image
from testbed.errors import TestbedError

_PROJECT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run the command line; return the exit status."""
    options = _arguments().parse_args()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    client = connect()
    if options.what == "base":
        say(f"making {BASE_IMAGE} by debootstrap")
        made, name = make_base(client, _PROJECT / WHEELS, options.mirror), BASE_IMAGE
    else:
        base = choose_base(client, options.base, say)
        if options.what == "wheels":
            wheels = prepare(_PROJECT, _PROJECT / WHEELS, target_of(client, base))
            say(f"{len(wheels)} wheels are in {WHEELS}")
            return 0
        name = options.tag or default_image()
        made = build(client, _PROJECT, base, name, say)
    size = client.images.get(name).attrs["Size"] / 1e6
    say(f"{name} is {made.removeprefix('sha256:')[:12]}, {size:.0f} MB")
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m images", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    base = what.add_parser("base", help="make a Debian base image by debootstrap, as root")
    base.add_argument("--mirror", help="the mirror of Debian's packages")
    wheels = what.add_parser("wheels", help="download the wheels that a build needs")
    build_image = what.add_parser("build", help="build the image")
    build_image.add_argument("--tag", help=f"the image's name; default: {default_image()}")
    for command in (wheels, build_image):
        command.add_argument("--base", help="the image to build on")
    return parser


if __name__ == "__main__":
    try:
        with answering():
            sys.exit(main())
    except TestbedError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
