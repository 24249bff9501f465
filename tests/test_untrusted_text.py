"""Files that another user may have written are read with limits; their text is printed safely."""

import os
import tracemalloc
from pathlib import Path

import pytest

from testbed.untrusted_text import open_file, parse_json, printable, read_file


def test_only_regular_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_file(tmp_path / "file") == b"content"
    assert read_file(tmp_path / "file", start=3) == b"tent"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("link", "symbolic link"),
        ("circle", "symbolic link"),
        ("device", "symbolic link"),
        ("folder", "no regular file"),
        ("pipe", "no regular file"),
    ):
        with pytest.raises(OSError, match=reason):
            read_file(tmp_path / name)
        with pytest.raises(OSError, match=reason):
            open_file(tmp_path / name, os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="no regular file"):
        read_file(Path("/dev/zero"))
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nothing")


def test_no_more_memory_is_taken_than_a_file_has(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    tracemalloc.start()
    read_file(tmp_path / "file", 1 << 32)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_file_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="larger than 64 MiB"):
        read_file(path)
    os.truncate(path, 1 << 20)
    assert len(read_file(path, 1 << 20)) == 1 << 20


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 30, str(2**63), "9" * 5000, "{", "\x00"]
)
def test_json_that_no_run_writes_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)
    assert parse_json(f"[{2**63 - 1}, {-(2**63) + 1}]") == [2**63 - 1, -(2**63) + 1]


def test_text_has_no_effect_on_a_terminal() -> None:
    shown = printable("a\x1b]0;title\x07\x9b2J\r\n\u202e\u2028\x7f\udcff\u00e9\u2192")
    assert shown == "a\\x1b]0;title\\x07\\x9b2J\\r\\n\\u202e\\u2028\\x7f\\udcff\u00e9\u2192"
    shown.encode()
