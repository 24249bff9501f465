"""CITATION.cff has the fields that citing needs, and the version of the code."""

import yaml

from images.release import version_of
from testbed.version import VERSION
from tests.docs.blocks import REPOSITORY


def test_the_citation_is_of_this_version_and_names_the_papers() -> None:
    assert version_of(REPOSITORY) == VERSION
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    needed = {"cff-version", "message", "title", "type", "authors", "license", "abstract"}
    assert needed <= set(cited)
    readme = (REPOSITORY / "docs" / "reproduction" / "README.md").read_text(encoding="utf-8")
    assert len(cited["references"]) == readme.count("\n- 00") == 4
    for paper in cited["references"]:
        assert {"type", "title", "authors", "year", "collection-title"} <= set(paper)
        assert all({"family-names", "given-names"} == set(one) for one in paper["authors"])
