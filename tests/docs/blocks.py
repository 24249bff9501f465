"""The code blocks of the README, the contributing guide and the pages of ``docs``."""

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")),
    *(f"docs/design/{p.name}" for p in (REPOSITORY / "docs" / "design").glob("*.md")),
]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        page: the page's path in the repository.
        line: the number of its first line on the page.
        language: as the fence names it; empty if it does not.
        text: its lines, without the indentation of a list around it.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """The first line of the text."""
        return self.text.splitlines()[0]

    @property
    def path(self) -> str | None:
        """The path of the file that a comment in the first line names; None without one."""
        found = re.fullmatch(r"# (\S+/\S+\.\w+)", self.first)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(language: str | None = None) -> list[Block]:
    """Return all blocks, or those of a language, in their order on the pages."""
    found = []
    for page in sorted(PAGES):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        for match in _FENCED.finditer(text):
            lines = [line.removeprefix(match[1]) for line in match[3].splitlines()]
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(page, line, match[2], "\n".join(lines) + "\n"))
    return [one for one in found if language in (None, one.language)]
