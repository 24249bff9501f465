"""``python -m reproduction fig3 --scale quick``: carry out a part of the paper, and write its page.

``fig1``, ``fig3``, ``fig3-even``, ``fig3-rate``, ``fig3-per-tensor``, ``table2``, ``fig4`` or ``all``
carry out the missing runs and write the pages; ``pages`` only writes the pages of the runs that exist.
``make adacomp-fig3`` and so on call this.
"""

import argparse
import sys
from pathlib import Path

from reproduction.driver import ENGINES, Order, carry_out_missing
from reproduction.paper import PARTS
from reproduction.scale import SCALES
from testbed.errors import SpecError, TestbedError


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        order = _order(given)
        if given.what != "pages":
            caught = carry_out_missing(order, lambda text: print(text, flush=True))
            if caught is not None:
                print("interrupted; started again, it goes on where it stopped", file=sys.stderr)
                return 128 + caught
        from reproduction.pages import write_pages

        folder = given.commit_pages or order.out / "pages" / order.scale.name
        for path in write_pages(order, folder):
            print(path)
    except TestbedError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _order(given: argparse.Namespace) -> Order:
    scale = SCALES[given.scale]
    names = list(PARTS) if given.what in ("all", "pages") else [given.what]
    parts = tuple(PARTS[name] for name in names)
    only = frozenset(given.only.split(",")) if given.only else frozenset()
    series = {one.name for part in parts for one in part.series}
    if unknown := sorted(only - series):
        raise SpecError(f"--only {unknown[0]}: there are {', '.join(sorted(series))}")
    return Order(
        parts, scale, given.seeds or scale.seeds, given.engine, given.out, only, given.at_once
    )


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(part) for part in text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("what", choices=[*PARTS, "all", "pages"])
    parser.add_argument("--scale", choices=list(SCALES), default="full", help="default: full")
    parser.add_argument("--engine", choices=ENGINES, default="docker", help="default: docker")
    parser.add_argument(
        "--seeds", type=_seeds, metavar="1,2,3", help="default: 1,2,3 at scale full, else 1"
    )
    parser.add_argument("--only", metavar="NAME,NAME", help="these lines or rows of the part only")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/adacomp"),
        metavar="DIR",
        help="the folder of the runs; default: runs/adacomp",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="simulations at a time; default: one per processor"
    )
    parser.add_argument(
        "--commit-pages",
        type=Path,
        metavar="DIR",
        help="write the pages there, e.g. docs/reproduction; default: pages/SCALE in the runs' folder",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
