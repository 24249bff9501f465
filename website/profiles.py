"""``python -m website.profiles``: write the table of profiles into ``docs/links.md``.

The figures, how sure they are and their sources are those of ``testbed.experiment.profiles``; a test
compares the page with them.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from testbed.experiment.profiles import HARDWARE, LINKS, HardwareProfile, LinkProfile, ProfileValue
from website.publications import SOURCES, SURE

PAGE = Path(__file__).parents[1] / "docs" / "links.md"
BEGIN, END = "<!-- profiles -->", "<!-- end of profiles -->"
MARKS = {"quoted": "", "about": "~", "assumed": "?"}
"""What stands before a figure, by how sure it is."""
_OF_LINKS = ("`profile`", "", "uplink", "downlink", "delay", "jitter", "loss")
_OF_DEVICES = ("`hardware`", "", "speed of a core", "cores", "memory")
_WIDTH = 118


def section() -> str:
    """Return the tables, the notes and the sources, as Markdown."""
    links = [
        [
            *(f"`{one.name}`", one.title),
            *map(_cell, (one.uplink, one.downlink, one.delay, one.jitter)),
            *(_cell(cost) if cost else "—" for cost in (one.loss, one.sent, one.received)),
        ]
        for one in LINKS.values()
    ]
    devices = [
        [
            f"`{one.name}`",
            one.title,
            *(_cell(figure) if figure else "—" for figure in _of_device(one).values()),
        ]
        for one in HARDWARE.values()
    ]
    notes = [_note(one.name, _figures(one)) for one in LINKS.values()]
    notes += [_note(one.name, _of_device(one)) for one in HARDWARE.values()]
    marks = "; ".join(f"{MARKS[sure] or 'no mark'}: {text}" for sure, text in SURE.items())
    sources = [
        f"- *{name}*: {source.title}" + (f", <{source.url}>" if source.url else "")
        for name, source in SOURCES.items()
    ]
    lines = [
        *_table([*_OF_LINKS, "a byte sent", "received"], links),
        "",
        *_table([*_OF_DEVICES, "idle", "all cores busy"], devices),
        "",
        *wrap(f"{marks}.", _WIDTH),
        "",
        *(line for note in notes if note for line in _wrapped(note)),
        "",
        "Sources, by the names used above:",
        "",
        *sources,
    ]
    return "\n".join(lines)


def _figures(one: LinkProfile) -> dict[str, ProfileValue | None]:
    return {
        "uplink": one.uplink,
        "downlink": one.downlink,
        "delay": one.delay,
        "jitter": one.jitter,
        "loss": one.loss,
        "a byte sent": one.sent,
        "received": one.received,
    }


def _of_device(one: HardwareProfile) -> dict[str, ProfileValue | None]:
    return {
        "speed": one.speed,
        "cores": one.cores,
        "memory": one.memory,
        "idle": one.idle,
        "all cores busy": one.loaded,
    }


def _cell(figure: ProfileValue) -> str:
    return MARKS[figure.sure] + figure.value


def _note(name: str, figures: dict[str, ProfileValue | None]) -> str:
    """Return an item of the list of notes; empty if there is nothing to say."""
    said = []
    for what, figure in figures.items():
        if figure is None or what == "cores" or (figure.source is None and not figure.note):
            continue
        parts = [f"*{figure.source}*"] * (figure.source is not None) + [figure.note] * bool(
            figure.note
        )
        said.append(f"{what}: {', '.join(parts)}")
    return f"- `{name}`: {'; '.join(said)}." if said else ""


def _wrapped(item: str) -> Iterator[str]:
    yield from wrap(item, _WIDTH, subsequent_indent="  ")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def page() -> str:
    """Return the page with the section as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


def main() -> int:
    """Run the command line; return the exit status."""
    argparse.ArgumentParser(prog="python -m website.profiles").parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
