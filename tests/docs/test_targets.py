"""Every target of ``make help`` is carried out by CI, or a row says when it was seen to work."""

import re
from datetime import date

from tests.docs.blocks import REPOSITORY

IN_CI = {
    "help": "tests/docs/test_targets.py",
    "install": ".ci/run",
    "test": ".ci/run",
    "lint": ".ci/run",
    "agree": "tests/end_to_end/test_agree.py",
    "architecture": "tests/docs/test_architecture.py",
    "base-image": "tests/images/test_base.py",
    "chaos": "tests/end_to_end/test_chaos.py",
    "check": "tests/docs/test_quick_tests.py",
    "chaos-programs": "tests/end_to_end/test_program_examples.py",
    "clean": "tests/end_to_end/test_ended_early.py",
    "dashboards": "tests/dashboards/test_generated.py",
    "docs": "tests/docs/test_site.py",
    "fuzz": "tests/experiment/test_generated.py",
    "fuzz-readers": "tests/bench/test_fuzz.py",
    "golden": "tests/bench/test_golden.py",
    "golden-write": "tests/bench/test_golden.py",
    "images": "tests/images/test_build.py",
    "kernels": "tests/kernels/test_booted.py",
    "mixtures": "tests/end_to_end/test_mixtures.py",
    "programs": "tests/end_to_end/test_program_examples.py",
    "profiles": "tests/docs/test_profiles.py",
    "reproduce": "tests/reproduction/test_second_paper.py",
    "reproduce-pages": "tests/reproduction/test_second_paper.py",
    "run": "tests/docs/test_shell_blocks.py",
}
"""The targets whose work CI does, with the file that has it done, often on a smaller scale."""
_TARGET = re.compile(r"^([a-z0-9-]+):.*## ", re.MULTILINE)
_ROW = re.compile(
    r"^\| (`[a-z0-9-]+`(?:, `[a-z0-9-]+`)*) \| (\d{4}-\d\d-\d\d|never) \|", re.MULTILINE
)


def test_every_target_is_in_ci_or_has_been_seen_to_work() -> None:
    targets = set(_TARGET.findall((REPOSITORY / "Makefile").read_text(encoding="utf-8")))
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [(re.findall(r"[a-z0-9-]+", names), day) for names, day in _ROW.findall(page)]
    seen = [name for names, _ in rows for name in names]
    assert sorted([*IN_CI, *seen]) == sorted(targets)
    assert all((REPOSITORY / path).is_file() for path in IN_CI.values())
    days = [date.fromisoformat(day) for _, day in rows if day != "never"]
    assert max(days) <= date.today()
