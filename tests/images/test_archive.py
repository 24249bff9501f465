"""Archives of a root file system: the same bytes at any time and in any order of files."""

import hashlib
import io
import os
import tarfile
import time
from pathlib import Path, PurePosixPath

from images.archive import EPOCH, write_tree


def make_tree(root: Path, names: tuple[str, ...]) -> None:
    (root / "usr").mkdir(parents=True)
    for name in names:
        (root / "usr" / name).write_text(name)
    os.link(root / "usr" / "b", root / "usr" / "hard")
    (root / "usr" / "soft").symlink_to("a")
    (root / "cache").mkdir()
    (root / "cache" / "rubbish").write_text("x")
    os.mkfifo(root / "pipe")
    os.utime(root / "usr" / "a", (1000, 1000))


def archived(root: Path, since: float) -> bytes:
    with io.BytesIO() as file:
        write_tree(file, root, since, lambda path: path.parent != PurePosixPath("cache"))
        return file.getvalue()


def test_an_archive_does_not_depend_on_order_or_time(tmp_path: Path) -> None:
    began = time.time() - 1
    made = []
    for number, names in enumerate((("a", "b", "c"), ("c", "b", "a"))):
        make_tree(tmp_path / str(number), names)
        made.append(archived(tmp_path / str(number), began))
        os.utime(tmp_path / str(number) / "usr" / "c")
    assert hashlib.sha256(made[0]).digest() == hashlib.sha256(made[1]).digest()


def test_an_archive_holds_files_and_links_but_no_cache_and_no_pipe(tmp_path: Path) -> None:
    make_tree(tmp_path / "root", ("a", "b"))
    content = io.BytesIO(archived(tmp_path / "root", time.time() - 60))
    with tarfile.open(fileobj=content) as archive:
        entries = {entry.name: entry for entry in archive}
        hard = archive.extractfile("usr/hard")
        assert hard is not None
        assert hard.read() == b"b"
    assert sorted(entries) == ["cache", "usr", "usr/a", "usr/b", "usr/hard", "usr/soft"]
    assert entries["usr/soft"].linkname == "a"
    # A file older than the build keeps its time: compiled Python modules name their source's.
    assert entries["usr/a"].mtime == 1000
    assert entries["usr/b"].mtime == EPOCH
    assert {entry.uname for entry in entries.values()} == {""}
