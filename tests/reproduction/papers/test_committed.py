"""The committed pages and claims of all papers, made again of their committed records."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction import claims_file, record_files
from reproduction.driver import Order
from reproduction.pages import write_pages
from reproduction.paper import load_paper
from reproduction.record import Record
from reproduction.record_files import read as as_committed
from tests.reproduction.papers.test_figures import COMMITTED


class _Asked(dict[str, Any]):
    """The diagnostics of a record, which note whose names are asked for."""

    def __init__(self, values: Mapping[str, Any], names: set[str]) -> None:
        super().__init__(values)
        self._names = names

    def get(self, name: str, default: Any = None) -> Any:
        self._names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        return super().__getitem__(name)


@pytest.mark.usefixtures("undrawn")  # that figures are drawn is tested in test_figures
@pytest.mark.parametrize(("name", "scale"), COMMITTED)
def test_the_committed_pages_and_claims_are_those_of_the_committed_records(
    name: str, scale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the records have the diagnostics that the pages ask for, and no other; nor other columns."""
    paper = load_paper(name)
    at = paper.scale(scale)
    committed = paper.pages / paper.suffix(at, "")
    shutil.copytree(committed / "records", tmp_path / "records")
    asked, kept, exact = set[str](), set[str](), set[str]()

    def read(folder: Path) -> dict[str, Record]:
        found = as_committed(folder)
        for key, record in found.items():
            for column in paper.unshown.get(record.spec.name, ()):
                assert np.isnan(getattr(record.evaluations, column)).all(), (key, column)
            told = record.diagnostics
            kept.update(told.values)
            exact.update(record.evaluations.exact)
            noted = replace(told, values=_Asked(told.values, asked))
            found[key] = replace(record, diagnostics=noted)
        return found

    monkeypatch.setattr(record_files, "read", read)
    order = Order(
        *(paper, paper.parts_of(at), at, at.seeds, "simulation", tmp_path / "runs"),
        measurements=paper.measurements,
    )
    made_by = re.compile("page made by .*")
    for path in write_pages(order, tmp_path)[0]:
        page = (committed / path.name).read_text()
        assert made_by.sub("", path.read_text()) == made_by.sub("", page), path.name
    rows = [
        row for row in claims_file.read(claims_file.FILE) if (row.paper, row.scale) == (name, scale)
    ]
    assert claims_file.read(tmp_path / "claims.csv") == rows
    declared = set(paper.diagnostics or ())
    assert kept <= declared
    if at is paper.scales[0]:
        assert rows and asked - exact == declared
