"""Fetch a dataset from its public mirrors into the user's cache.

A file appears in the cache only complete and verified: it is written to the same folder under another
name, its size is limited, its unpacked contents are checked, and only then is it renamed. If a mirror
fails in any way, the next mirror is tried; if all fail, the error says how each of them failed.
"""

import functools
import hashlib
import http.client
import re
import secrets
import shutil
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from testbed.errors import DataError, SpecError
from testbed.learning.data import idx, sources
from testbed.learning.data.cifar import CIFARS, MIRRORS, Cifar

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the file's name, bytes so far and bytes in all (None if the mirror does not say).
"""

_LARGEST = 256 << 20
"""The most bytes of one compressed file; CIFAR-10's archive has 170 million."""
_CHUNK = 1 << 16


def fetch(
    name: str,
    progress: Progress,
    *,
    mirrors: Sequence[str] | None = None,
    into: Path | None = None,
    timeout: float = 30.0,
    deadline: float = 1800.0,
) -> Path:
    """Fetch the files of a dataset that the cache does not hold yet; verify all, return their folder.

    Args:
        name: ``mnist``, ``fashion-mnist``, ``cifar10`` or ``cifar100``.
        mirrors: addresses to try instead of the public mirrors, in order.
        into: folder of the files instead of the user's cache.
        timeout: seconds without a byte after which a mirror is given up.
        deadline: seconds for one file from one mirror, even if bytes still arrive.

    Raises:
        DataError: every mirror failed, or the directory cannot be written.
        SpecError: this dataset cannot be fetched.
    """
    if name not in (*sources.SOURCES, *CIFARS):
        fetched = ", ".join((*sources.SOURCES, *CIFARS))
        raise SpecError(f"{name!r} cannot be fetched; {fetched} can")
    directory = into or sources.cache(name)

    def download(url: str) -> Iterator[bytes]:
        return _download(url, progress, timeout, deadline)

    try:
        directory.mkdir(parents=True, exist_ok=True)
        if name in CIFARS:
            _fetch_cifar(CIFARS[name], directory, mirrors or MIRRORS, download)
            return directory
        source = sources.SOURCES[name]
        for file, md5 in zip(sources.FILES, source.md5, strict=True):
            target, verify = directory / f"{file}.gz", functools.partial(_verify, md5=md5)
            if not _is_true(target, verify):
                _fetch_file(target, verify, mirrors or source.mirrors, download)
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror or error}") from error
    return directory


def _fetch_cifar(
    cifar: Cifar,
    directory: Path,
    mirrors: Sequence[str],
    download: Callable[[str], Iterator[bytes]],
) -> None:
    """Fetch the archive, unless its files are there, and take the files out of it."""
    found = cifar.files_in(directory)
    if found is not None and _is_true(directory, lambda _: cifar.read(found)):
        return
    archive, verify = directory / cifar.archive, functools.partial(_verify_archive, md5=cifar.md5)
    if not _is_true(archive, verify):
        _fetch_file(archive, verify, mirrors, download)
    wanted = {f"{cifar.folder}/{file}": directory / file for file in cifar.files}
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                target = wanted.pop(member.name, None)
                content = opened.extractfile(member) if target and member.isfile() else None
                if target and content:
                    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
                    with beside.open("xb") as file:
                        shutil.copyfileobj(content, file)
                    beside.replace(target)
    except tarfile.TarError as error:
        raise DataError(
            f"{archive} cannot be unpacked: {error}; remove it and fetch again"
        ) from error
    if wanted:
        raise DataError(f"{archive} has no {min(wanted)}; remove it and fetch again")
    cifar.read([directory / file for file in cifar.files])
    archive.unlink()  # its files have all that it has, and it is as large


def _verify_archive(path: Path, md5: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(
                file, lambda: hashlib.md5(usedforsecurity=False)
            ).hexdigest()
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there") from error
    if found != md5:
        raise DataError(f"the MD5 of what it sent is {found}, not {md5}")


def _fetch_file(
    target: Path,
    verify: Callable[[Path], None],
    mirrors: Sequence[str],
    download: Callable[[str], Iterator[bytes]],
) -> None:
    failures = []
    for mirror in mirrors:
        # Opened without tempfile, so that the user's umask sets the mode: tempfile's files are 0600,
        # and the user of the devices' image could not read the dataset.
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with beside.open("xb") as file:
            try:
                for chunk in download(mirror + target.name):
                    file.write(chunk)
                file.flush()
                verify(beside)
                beside.replace(target)
                return
            except DataError as error:
                failures.append(f"{mirror}: {error}".replace(str(beside), "what it sent"))
            finally:
                beside.unlink(missing_ok=True)
    raise DataError(
        f"{target.name} could not be fetched from any mirror ({'; '.join(failures)}); "
        f"check the network, or put the file into {target.parent} by hand"
    )


def _download(url: str, progress: Progress, timeout: float, deadline: float) -> Iterator[bytes]:
    """Yield the body of an address in chunks; every failure is a DataError."""
    started = time.monotonic()
    request = urllib.request.Request(url, headers={"User-Agent": "testbed"})
    name = url.rpartition("/")[2]
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            announced = response.headers.get("Content-Length", "")
            total = int(announced) if re.fullmatch("[0-9]{1,18}", announced) else None
            if total is not None and total > _LARGEST:
                raise DataError(f"it announces {total} bytes, more than {_LARGEST}")
            done = 0
            # read1 returns the bytes that are there, so that a slow mirror cannot evade the deadline.
            while chunk := response.read1(_CHUNK):
                done += len(chunk)
                if done > _LARGEST:
                    raise DataError(f"it sent more than {_LARGEST} bytes")
                if time.monotonic() - started > deadline:
                    raise DataError(f"it sent {done} bytes in {deadline:.0f} s, too slow")
                progress(name, done, total)
                yield chunk
            if total is not None and done != total:
                raise DataError(f"it broke off after {done} of {total} bytes")
    except (OSError, http.client.HTTPException) as error:
        # URLError, HTTPError, timeouts and resets are all OSErrors.
        raise DataError(str(error) or type(error).__name__) from error


def _verify(path: Path, md5: str) -> None:
    found = idx.read(path, dimensions=1 if "idx1" in path.name else 3).md5
    if found != md5:
        raise DataError(f"the MD5 of the contents it sent is {found}, not {md5}")


def _is_true(path: Path, verify: Callable[[Path], object]) -> bool:
    try:
        verify(path)
    except DataError:
        return False
    return True
