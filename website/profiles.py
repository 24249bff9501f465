"""``python -m website.profiles``: write the table of profiles into ``docs/links.md``.

The figures, how sure they are and their sources are those of ``testbed.experiment.profiles``; a test
compares the page with them.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from testbed.experiment.profiles.hardware_profiles import HARDWARE
from testbed.experiment.profiles.link_profiles import LINKS, LinkProfile
from testbed.experiment.profiles.profile_value import SURE, ProfileValue
from testbed.experiment.profiles.publications import SOURCES

PAGE = Path(__file__).parents[1] / "docs" / "links.md"
BEGIN, END = "<!-- profiles -->", "<!-- end of profiles -->"
MARKS = {"quoted": "", "about": "~", "assumed": "?"}
"""What stands before a figure, by how sure it is."""
_WIDTH = 118


def section() -> str:
    """Return the tables, the notes and the sources, as Markdown."""
    links = [
        [
            *(f"`{one.name}`", one.title),
            *map(_cell, _figures(one).values()),
            *["—"] * (one.loss is None),
        ]
        for one in LINKS.values()
    ]
    devices = [
        [f"`{one.name}`", one.title, *map(_cell, (one.speed, one.cores, one.memory))]
        for one in HARDWARE.values()
    ]
    notes = [_note(one.name, _figures(one)) for one in LINKS.values()]
    notes += [
        _note(one.name, {"speed": one.speed, "memory": one.memory}) for one in HARDWARE.values()
    ]
    marks = "; ".join(f"{MARKS[sure] or 'no mark'}: {text}" for sure, text in SURE.items())
    sources = [
        f"- *{name}*: {source.title}" + (f", <{source.url}>" if source.url else "")
        for name, source in SOURCES.items()
    ]
    lines = [
        *_table(["`profile`", "", "uplink", "downlink", "delay", "jitter", "loss"], links),
        "",
        *_table(["`hardware`", "", "speed of a core", "cores", "memory"], devices),
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


def _figures(one: LinkProfile) -> dict[str, ProfileValue]:
    known = {
        "uplink": one.uplink,
        "downlink": one.downlink,
        "delay": one.delay,
        "jitter": one.jitter,
    }
    return known if one.loss is None else known | {"loss": one.loss}


def _cell(figure: ProfileValue) -> str:
    return MARKS[figure.sure] + figure.value


def _note(name: str, figures: dict[str, ProfileValue]) -> str:
    """Return an item of the list of notes; empty if there is nothing to say."""
    said = []
    for what, figure in figures.items():
        if figure.source is None and not figure.note:
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
