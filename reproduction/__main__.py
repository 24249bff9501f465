"""``python -m reproduction fig3 --scale quick``: carry out a part of a paper, and write its page.

A part's name, or ``all``, carries out the missing runs and writes the pages; ``pages`` only writes the
pages of the runs that exist. At its end the command says what differs from the committed claims.
``--paper all`` does so for each paper. ``make reproduce PAPER=adacomp PART=fig3`` and ``make
adacomp-fig3`` call this.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from reproduction.driver import ENGINES, Order, carry_out_missing
from reproduction.paper import load_paper, names
from reproduction.records import Records
from testbed.display.many_runs import ManyRuns
from testbed.display.standard_streams import command, tell
from testbed.errors import SpecError
from testbed.sweeps.missing_runs import Means

COMMITTED = Path()
"""Stands for the folder of the paper's committed pages."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status, or exit with that of an error."""
    with command("reproduction"):
        given = _parser().parse_args(arguments)
        papers = list(names()) if given.paper == "all" else [given.paper]
        orders = [_order(given, paper) for paper in papers]
        return next((code for order in orders if (code := _carry_out(order, given))), 0)


def _carry_out(order: Order, given: argparse.Namespace) -> int:
    folder = given.commit_pages or order.out / "pages" / order.scale.name
    if given.commit_pages is COMMITTED:
        folder = order.paper.pages / order.paper.suffix(order.scale, "")
    if given.what != "pages":
        means = Means(partial(tell, output=True), ManyRuns, given.at_once)
        for one in order.measurements:
            one.carry_out(order.scale, folder)
        caught = carry_out_missing(order, means, Records(folder)) if order.parts else None
        if caught is not None:
            tell("interrupted; started again, it goes on where it stopped")
            return 128 + caught
    from reproduction import claims_file
    from reproduction.pages import write_pages

    committed = claims_file.read(claims_file.FILE)
    file = claims_file.FILE if given.commit_pages is COMMITTED else None
    paths, claims = write_pages(order, folder, file)
    print(*paths, *claims_file.difference(committed, claims), sep="\n")
    return 0


def _order(given: argparse.Namespace, name: str) -> Order:
    paper = load_paper(name)
    scale = paper.scale(given.scale) if given.scale else paper.scales[0]
    what = "all" if given.what == "pages" else given.what
    parts, measurements = paper.named(what, scale)
    only = frozenset(given.only.split(",")) if given.only else frozenset()
    series = {one.name for part in parts for one in part.series}
    if unknown := sorted(only - series):
        raise SpecError(f"--only {unknown[0]}: there are {', '.join(sorted(series))}")
    out = given.out or Path("runs") / paper.name
    if given.out and given.paper == "all":
        out = given.out / paper.name
    seeds = given.seeds or scale.seeds
    return Order(paper, parts, scale, seeds, given.engine, out, only, measurements)


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(part) for part in text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("what", help="a part, such as fig3; all; or pages")
    parser.add_argument(
        "--paper", default="adacomp", metavar="NAME", help="all, or a Python file; default: adacomp"
    )
    parser.add_argument("--scale", metavar="NAME", help="default: the paper's first, such as full")
    parser.add_argument("--engine", choices=ENGINES, default="docker", help="default: docker")
    parser.add_argument("--seeds", type=_seeds, metavar="1,2,3", help="default: those of the scale")
    parser.add_argument("--only", metavar="NAME,NAME", help="these lines or rows of the part only")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the folder of the runs, of all papers with a folder for each; default: runs/NAME",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="simulations at a time; default: one per processor"
    )
    parser.add_argument(
        "--commit-pages",
        type=Path,
        nargs="?",
        const=COMMITTED,
        metavar="DIR",
        help="write the pages there, or to the paper's committed ones (default: OUT/pages/SCALE); a "
        "run that they have a record of is not made again",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
