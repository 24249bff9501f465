"""The folders of devices with programs on a host that is not the orchestrator's."""

import os
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from testbed.orchestrator.agent.device_folders import FoldersElsewhere, elsewhere, make, unpack


def test_a_folder_and_what_it_is_seen_at_are_removed_at_the_end(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "one" / "nodes"
    with elsewhere(str(place)) as folder:
        assert folder is not None and place.is_dir()
        make(Path(folder), ["worker-0"], [])
        (tmp_path / "runs" / "other").mkdir()
    assert not Path(folder).exists()
    assert [*(tmp_path / "runs").iterdir()] == [tmp_path / "runs" / "other"]
    with elsewhere(str(tmp_path)) as folder:  # the hosts share this folder
        pass
    assert tmp_path.is_dir()


def test_what_programs_have_written_comes_home(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name in ("kept.py", "changed.py"):
        (code / name).write_text("before")
    there, home = tmp_path / "there", tmp_path / "here"
    make(home, ["worker-0"], [str(code)])
    folders = FoldersElsewhere(there, ["worker-0"], [str(code)])
    time.sleep(0.02)  # the kernel's times of files are those of its last tick
    own = there / "worker-0"
    (own / "job.log").write_bytes(b"one\ntwo\n")
    (own / "odd.log").symlink_to(code / "kept.py")
    (own / "folder.log").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert [(one.program, one.raw) for one in folders.written()] == [("job", b"one\ntwo\n")]
    assert len(os.listdir("/proc/self/fd")) == before
    with (own / "job.log").open("ab") as log:
        log.write(b"three\n")
    assert [(one.program, one.raw) for one in folders.written()] == [("job", b"three\n")]
    assert [*folders.written()] == []

    (own / "home" / "code" / "changed.py").write_text("after")
    (own / "home" / "models").mkdir()
    (own / "home" / "models" / "last").write_bytes(bytes(3 << 20))
    (own / "home" / "link").symlink_to("/etc/passwd")
    parts = []
    while raw := folders.part_of_home("worker-0").raw:
        parts.append(raw)
    assert len(parts) > 3
    with tempfile.TemporaryFile() as archive:
        archive.write(b"".join(parts))
        unpack(archive, home / "worker-0" / "home")
    own = home / "worker-0" / "home"
    assert (own / "code" / "changed.py").read_text() == "after"
    assert (own / "models" / "last").stat().st_size == 3 << 20
    assert b"kept.py" not in b"".join(parts)
    assert not (own / "link").is_symlink()


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name in ("one", "two"):
        os.mkfifo(code / name)
    with pytest.raises(OSError, match=r"code/(one|two)', one of `files`, cannot .* named pipe$"):
        make(tmp_path / "home", ["worker-0"], [str(code)])


def test_an_archive_writes_nothing_outside_of_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("../outside", "link"):
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as written:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                written.addfile(member)
            with pytest.raises(OSError, match="is not written"):
                unpack(archive, home)
    assert [*tmp_path.rglob("*")] == [home]
