"""Fetching datasets from real HTTP servers on this machine, some of which misbehave."""

import gzip
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from testbed.errors import DataError, SpecError
from testbed.learning.data import sources
from testbed.learning.data.fetch import fetch

Writer = Callable[[Path, int, int], None]


class Mirror(ThreadingHTTPServer):
    """An HTTP server of files in memory; ``behaviour`` names what is wrong with it."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.behaviour = "good"
        self.asked: list[str] = []
        self.stopping = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/data/"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        body = self.server.files[name]
        match self.server.behaviour:
            case "absent":
                self.send_error(404)
                return
            case "hanging":
                self.server.stopping.wait(20)
                return
            case "corrupt":
                changed = bytearray(gzip.decompress(body))
                changed[-1] ^= 1
                body = gzip.compress(bytes(changed))
            case "lying":
                body = b"<html>please log in</html>"
            case "huge":
                self.send_response(200)
                self.send_header("Content-Length", str(1 << 40))
                self.end_headers()
                return
        self.send_response(200)
        if self.server.behaviour.startswith("announcing"):
            self.send_header("Content-Length", self.server.behaviour.partition(" ")[2])
        elif self.server.behaviour != "unannounced":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.behaviour == "trickling":
            for byte in body:
                self.wfile.write(bytes((byte,)))
                if self.server.stopping.wait(0.02):
                    return
        cut = self.server.behaviour in ("truncated", "unannounced truncated")
        self.wfile.write(body[: len(body) // 2] if cut else body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_idx: Writer
) -> Iterator[Callable[[str], Mirror]]:
    """Yield a function that starts a mirror of a made-up dataset named "small"."""
    write_idx(tmp_path / "origin", 20, 10)
    contents = {file: (tmp_path / "origin" / file).read_bytes() for file in sources.FILES}
    a, b, c, d = (hashlib.md5(content).hexdigest() for content in contents.values())
    monkeypatch.setitem(sources.SOURCES, "small", sources.Source((a, b, c, d), ()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TESTBED_DATA", raising=False)
    mirrors: list[tuple[Mirror, threading.Thread]] = []

    def start(behaviour: str) -> Mirror:
        mirror = Mirror({f"{file}.gz": gzip.compress(c) for file, c in contents.items()})
        mirror.behaviour = behaviour
        thread = threading.Thread(target=mirror.serve_forever, args=(0.01,))
        thread.start()
        mirrors.append((mirror, thread))
        return mirror

    yield start
    for mirror, thread in mirrors:
        mirror.stopping.set()
        mirror.shutdown()
        mirror.server_close()
        thread.join()


def silent(file: str, done: int, total: int | None) -> None:
    """Ignore the progress."""


@pytest.mark.parametrize(
    "behaviour",
    ["good", "unannounced", f"announcing {'1' * 5000}", "announcing \xb2", "announcing -1"],
    ids=["good", "unannounced", "digits", "superscript", "negative"],
)
def test_a_dataset_is_fetched_from_a_good_mirror(
    served: Callable[[str], Mirror], tmp_path: Path, behaviour: str
) -> None:
    mirror = served(behaviour)
    steps: list[tuple[str, int, int | None]] = []
    directory = fetch("small", lambda *step: steps.append(step), mirrors=[mirror.address])
    assert directory == tmp_path / "cache" / "testbed" / "small"
    assert sorted(p.name for p in directory.iterdir()) == sorted(f"{f}.gz" for f in sources.FILES)
    images, labels, _, _ = sources.read(sources.locate("small"), sources.SOURCES["small"].md5)
    assert (len(images), len(labels)) == (20, 20)
    assert {step[0] for step in steps} == set(mirror.asked)
    last = [step for step in steps if step[0] == f"{sources.FILES[0]}.gz"][-1]
    size = len(mirror.files[last[0]])
    assert last[1:] == (size, size if behaviour == "good" else None)


def test_files_with_the_right_checksum_are_not_fetched_again(
    served: Callable[[str], Mirror],
) -> None:
    mirror = served("good")
    directory = fetch("small", silent, mirrors=[mirror.address])
    mirror.asked.clear()
    fetch("small", silent, mirrors=[mirror.address])
    assert mirror.asked == []
    (directory / f"{sources.FILES[1]}.gz").write_bytes(b"damaged")
    fetch("small", silent, mirrors=[mirror.address])
    assert mirror.asked == [f"{sources.FILES[1]}.gz"]


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("absent", "404"),
        ("corrupt", "the MD5 of the contents it sent is [0-9a-f]{32}, not"),
        ("truncated", r"it broke off after \d+ of \d+ bytes"),
        ("lying", "what it sent is not an idx file"),
        ("huge", "it announces 1099511627776 bytes"),
        ("hanging", "timed out"),
        ("trickling", "too slow"),
    ],
)
def test_a_bad_mirror_is_reported_or_the_next_one_is_used(
    served: Callable[[str], Mirror], behaviour: str, message: str
) -> None:
    bad, good = served(behaviour), served("good")
    with pytest.raises(DataError, match=message) as raised:
        fetch("small", silent, mirrors=[bad.address], timeout=0.3, deadline=0.5)
    assert bad.address in str(raised.value)
    directory = sources.cache("small")
    assert list(directory.iterdir()) == []
    started = time.monotonic()
    fetch("small", silent, mirrors=[bad.address, good.address], timeout=0.3, deadline=0.5)
    assert time.monotonic() - started < 10
    assert len(list(directory.iterdir())) == 4
    assert len(good.asked) == 4


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_decides_who_may_read_a_file(
    served: Callable[[str], Mirror], umask: int, mode: int
) -> None:
    mirror = served("good")
    before = os.umask(umask)
    try:
        directory = fetch("small", silent, mirrors=[mirror.address])
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {mode}


def test_the_failure_of_every_mirror_is_reported(served: Callable[[str], Mirror]) -> None:
    absent, corrupt = served("absent"), served("corrupt")
    closed = served("good")
    closed.shutdown()
    closed.server_close()
    addresses = [absent.address, corrupt.address, closed.address]
    with pytest.raises(DataError) as raised:
        fetch("small", silent, mirrors=addresses, timeout=2)
    for address in addresses:
        assert address in str(raised.value)
    assert "refused" in str(raised.value)
    assert "by hand" in str(raised.value)


def test_a_cache_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written: Not a directory"):
        fetch("mnist", silent, mirrors=["http://127.0.0.1:9/"], into=tmp_path / "file" / "mnist")


def test_a_dataset_without_a_source_cannot_be_fetched() -> None:
    with pytest.raises(
        SpecError, match="'digits' cannot be fetched; mnist, fashion-mnist, cifar10, cifar100 can"
    ):
        fetch("digits", silent)
