"""The base image: the host's mirror, what prevents a build, and what the image holds."""

import os
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from images.base import BASE_IMAGE, host_mirror, make_base
from testbed.errors import HostError

LINES = """\
# deb http://commented.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb http://other.example/packages bookworm main
deb [signed-by=/k.gpg] https://mirror.example/debian/ bookworm main contrib
"""
STANZAS = """\
Types: deb
# a comment
URIs: https://security.example/debian-security
Suites: bookworm-security
Components: main

Types: deb deb-src
URIs: file:///pool/debian https://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
"""


@pytest.mark.parametrize(
    ("file", "content", "mirror"),
    [
        ("sources.list", LINES, "https://mirror.example/debian/"),
        ("sources.list.d/debian.list", LINES, "https://mirror.example/debian/"),
        ("sources.list.d/debian.sources", STANZAS, "https://mirror.example/debian"),
        ("sources.list", "deb http://u.example/ubuntu noble main\n", None),
        ("sources.list", "deb http://t.example/debian trixie main\n", None),
    ],
)
def test_the_mirror_is_read_from_the_hosts_package_sources(
    tmp_path: Path, file: str, content: str, mirror: str | None
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    assert host_mirror(tmp_path) == mirror


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_an_ordinary_user_is_told_that_root_is_needed(
    docker_client: docker.DockerClient, tmp_path: Path
) -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(HostError, match=r"needs root: run `sudo make base-image`"):
            make_base(docker_client, tmp_path)
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, without which that is said first")
def test_without_debootstrap_the_error_names_the_remedy(
    docker_client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="apt-get install debootstrap"):
        make_base(docker_client, tmp_path)


def test_the_base_holds_nothing_of_the_host_and_no_cache(
    docker_client: docker.DockerClient, testbed_image: str
) -> None:
    assert testbed_image  # its fixture builds the base if there is none
    try:
        docker_client.images.get(BASE_IMAGE)
    except ImageNotFound:
        pytest.skip(f"the image was built on another base than {BASE_IMAGE}")
    look = (
        "ls -A /var/cache/apt /var/lib/apt/lists /var/log /usr/share/man; cat /etc/apt/sources.list; "
        "ls /usr/share/doc/bash; python3 -c 'import venv, ssl, sqlite3'"
    )
    said = docker_client.containers.run(
        BASE_IMAGE, ["sh", "-c", f"({look}) 2>&1"], network_mode="none", remove=True
    ).decode()
    headings = [
        f"/{name}:" for name in ("usr/share/man", "var/cache/apt", "var/lib/apt/lists", "var/log")
    ]
    missing = "cat: /etc/apt/sources.list: No such file or directory"
    lines = [line for line in said.splitlines() if line]
    assert sorted(lines) == sorted([*headings, missing, "copyright"])
