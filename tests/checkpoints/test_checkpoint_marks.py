"""The marks of the last checkpoints: kept, replaced, cut back, and read from their file."""

from pathlib import Path

from testbed.checkpoints.checkpoint_marks import NAME, Mark, Marks


def mark(version: int, updates: int = 0) -> Mark:
    return Mark(version, version / 10, updates, 1, 2, 3, 4, [{"payload_bytes": 7}], [5])


def test_the_last_marks_are_kept_and_read_back(tmp_path: Path) -> None:
    assert list(Marks.load(tmp_path)) == []
    marks = Marks(tmp_path)
    for version in (0, 10, 20, 30):
        marks.note(mark(version))
        assert list(Marks.load(tmp_path)) == list(marks)
    assert marks.of(0) is None
    assert [one.version for one in marks] == [10, 20, 30]
    assert Marks.load(tmp_path).of(20) == mark(20)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_version_that_is_passed_again_has_the_new_mark(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    for version in (10, 20, 30):
        marks.note(mark(version, updates=1))
    marks.note(mark(20, updates=2))
    assert [(one.version, one.updates) for one in marks] == [(10, 1), (20, 2)]


def test_cut_back_leaves_no_mark_of_a_later_version(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    for version in (10, 20, 30):
        marks.note(mark(version))
    marks.cut_back(20)
    assert list(marks) == list(Marks.load(tmp_path)) == [mark(10), mark(20)]
