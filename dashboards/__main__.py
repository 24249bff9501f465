"""``python -m dashboards``: write the JSON into ``dashboards/json``, or check that it is current."""

import argparse
import sys

from dashboards.generation import FOLDER, differences, generated, write


def main() -> int:
    """Run the command line; return the exit status, 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    if parser.parse_args().check:
        found = differences()
        if found:
            print(
                f"dashboards/json is not what the code makes ({', '.join(found)}): "
                "run python -m dashboards and commit the result",
                file=sys.stderr,
            )
        return 1 if found else 0
    touched = write()
    print(f"{len(generated())} dashboards in {FOLDER}, {len(touched)} of them changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
