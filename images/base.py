"""A base image without a registry: Debian by debootstrap, imported into the engine.

The image is what ``debian:bookworm-slim`` with Python would be: no documentation but the copyright
notices, no package lists, no caches, nothing that names the host on which it was made.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import docker

from images.archive import write_tree
from images.engine import check_answer
from testbed.errors import HostError

BASE_IMAGE = "testbed-base:bookworm"
"""The image that ``make_base`` makes."""
MIRROR = "http://deb.debian.org/debian"
"""The source of Debian's packages unless the host's apt or the user names another."""
_SUITE = "bookworm"
_PACKAGES = ("python3", "python3-venv")
_APT = Path("/etc/apt")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def _paths(text: str) -> frozenset[PurePosixPath]:
    return frozenset(map(PurePosixPath, text.split()))


_EMPTY = _paths(
    "dev proc run sys tmp usr/share/groff usr/share/info usr/share/lintian usr/share/locale "
    "usr/share/man var/cache/apt var/cache/debconf var/cache/ldconfig var/lib/apt/lists var/log"
)
"""Folders that are kept without their content."""
_LEFT_OUT = _paths(
    "debootstrap etc/.pwd.lock etc/apt/sources.list etc/hostname etc/machine-id etc/resolv.conf"
)


def make_base(client: docker.DockerClient, cache: Path, mirror: str | None = None) -> str:
    """Make the base image and import it into the engine; return its id.

    Args:
        cache: a folder that keeps the downloaded packages for the next time.
        mirror: source of the packages; None: the host's own, if it is a Debian, or ``MIRROR``.

    Raises:
        HostError: the user is not root, debootstrap or Debian's keyring is missing, a package is not
            available, or the engine refuses the image.
    """
    if os.geteuid() != 0:
        raise HostError(
            "debootstrap needs root: run `sudo make base-image`, or name an image with Python by BASE"
        )
    if shutil.which("debootstrap") is None:
        raise HostError("debootstrap is not installed: apt-get install debootstrap")
    if not _KEYRING.exists():
        raise HostError(
            f"{_KEYRING}, which checks Debian's packages, is missing: apt-get install "
            "debian-archive-keyring"
        )
    packages = (cache / "debian").absolute()
    packages.mkdir(parents=True, exist_ok=True)
    # Removed with everything in it, debootstrap's log too, whatever happens.
    with tempfile.TemporaryDirectory(prefix="testbed-base-") as made:
        root, began = Path(made) / "root", time.time()
        _debootstrap(root, packages, mirror or host_mirror(_APT) or MIRROR)
        with tempfile.TemporaryFile(dir=made) as archive:
            write_tree(archive, root, began, _wanted)
            archive.seek(0)
            return _import(client, archive)


def host_mirror(apt: Path) -> str | None:
    """Return the mirror that a Debian host's own apt uses for this suite, or None.

    Args:
        apt: folder of apt's configuration, ``/etc/apt``.
    """
    for uri, suites, components in _sources(apt):
        path = urlsplit(uri).path.rstrip("/")
        if _SUITE in suites and "main" in components and path.endswith("/debian"):
            return uri
    return None


def _sources(apt: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield address, suites and components of every source of binary packages, in either format."""
    for file in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))):
        lines = file.read_text().splitlines() if file.is_file() else []
        for line in lines:
            if match := re.match(r"deb\s+(?:\[[^]]*\]\s+)?(https?://\S+)\s+(\S+)\s+([^#]*)", line):
                yield match[1], [match[2]], match[3].split()
    for file in sorted((apt / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", stanza, re.MULTILINE))
            if "deb" in fields.get("Types", "").split():
                for uri in fields.get("URIs", "").split():
                    if uri.startswith(("http://", "https://")):
                        yield uri, fields["Suites"].split(), fields.get("Components", "").split()


def _debootstrap(root: Path, packages: Path, mirror: str) -> None:
    command = [
        "debootstrap",
        "--force-check-gpg",
        "--variant=minbase",
        f"--include={','.join(_PACKAGES)}",
        f"--cache-dir={packages}",
        _SUITE,
        str(root),
        mirror,
    ]
    # The user's locale and Python settings must not reach the image.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    environment |= {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}
    result = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if result.returncode:
        said = result.stdout.decode(errors="replace").strip().splitlines()
        why = next((line for line in said if line.startswith("E:")), said[-1] if said else "")
        raise HostError(
            f"debootstrap could not make {_SUITE} from {mirror} ({why.removeprefix('E:').strip()}): "
            "name another mirror by MIRROR, or an image with Python by BASE"
        )


def _wanted(path: PurePosixPath) -> bool:
    if path in _LEFT_OUT or path.parent in _EMPTY:
        return False
    return not (path.is_relative_to("usr/share/doc") and _is_documentation(path))


def _is_documentation(path: PurePosixPath) -> bool:
    """Return True unless a path in usr/share/doc is a package's folder or copyright notice."""
    depth = len(path.parts)
    return depth > 5 or (depth == 5 and path.name != "copyright")


def _import(client: docker.DockerClient, archive: object) -> str:
    repository, _, tag = BASE_IMAGE.partition(":")
    answer = client.api.import_image(
        src=archive,
        repository=repository,
        tag=tag,
        changes=[
            'CMD ["bash"]',
            "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LABEL org.opencontainers.image.title=testbed-base",
        ],
    )
    check_answer(answer.splitlines(), f"the image {BASE_IMAGE} could not be imported")
    return str(client.images.get(BASE_IMAGE).id)
