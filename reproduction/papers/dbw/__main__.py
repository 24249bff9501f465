"""``python -m reproduction.papers.dbw FOLDER SCALE``: write ``knee.json`` from the records of pages.

``make dbw-knee`` calls this after the sweep over learning rates.
"""

import json
import sys
from pathlib import Path

from reproduction.measures import lines_of
from reproduction.papers.dbw import PAPER, knee
from reproduction.papers.dbw.lines import KNEE, KNEES
from reproduction.papers.dbw.scales import TINY
from reproduction.records import Records


def main(folder: str, scale: str) -> None:
    """Write the knees of which all rates have a run of a seed; of the tests' scale only print them."""
    size = PAPER.scale(scale)
    lines = lines_of(KNEE, size, size.seeds, Records(Path(folder)))
    found = knee.found(lines, KNEES)
    text = json.dumps(found, indent=2, sort_keys=True)
    if size is TINY:
        print(f"{knee.FILE} stays as it is, since {scale} is for tests: {text}")
        return
    knee.FILE.write_text(f"{text}\n", encoding="utf-8")
    print(f"{knee.FILE}: {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
