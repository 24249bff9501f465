"""The README's example runs, and prints what the README says."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_example_prints_what_the_readme_says() -> None:
    text = (REPOSITORY / "fastgrad" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"It prints\n\n```\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == printed
