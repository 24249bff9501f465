"""The files in /etc by which a program in a device finds names: its own, and those of the others.

A device knows every device of its run by name, and nobody else: there is no name server that it could
reach, so a look-up of another name has to fail at once, and not after the resolver's patience of some
seconds.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from testbed.nodes import linux

HOSTS, HOST_NAME = "hosts", "hostname"
_RESOLVER = "resolv.conf"
_SOURCES = "nsswitch.conf"
_LONGEST = 1 << 22
"""Bytes of a file that are read; a device has some 30 in /etc/hosts."""
_FOLDER = "/sys"
"""A folder of every host: the files are made in a file system that is mounted there for a moment."""


def shared(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the files that are alike in all devices of a run: their contents by their names in /etc.

    Args:
        addresses: of the devices, by all their names.
    """
    names: dict[str, list[str]] = {}
    for name, address in addresses.items():
        names.setdefault(address, []).append(name)
    # Not ::1, which is no address in a device: IPv6 is off there.
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address} {' '.join(known)}" for address, known in names.items()]
    return {
        HOSTS: "".join(f"{line}\n" for line in lines),
        # Nothing listens there, and the kernel says so at once.
        _RESOLVER: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        # Other sources (systemd-resolved, mDNS) ask daemons of the host.
        _SOURCES: "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
    }


def own(device: str) -> dict[str, str]:
    """Return the files of a device that no other has."""
    return {HOST_NAME: f"{device}\n"}


def write(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Write files into a folder; return each one's path by its path in a device.

    Raises:
        OSError: they cannot be written.
    """
    found: dict[str, Path] = {}
    for name, content in files.items():
        path = folder / name
        path.write_text(content)
        path.chmod(0o444)
        found[f"/etc/{name}"] = path
    return found


def cover(files: Mapping[str, str], folder: Path | None = None) -> None:
    """Mount files over those in /etc, in this process's mount namespace.

    A file that /etc does not have stays away: without it the C library takes what these files say.

    Args:
        folder: where they are made; None for a file system of their own, that is nowhere else.

    Raises:
        OSError: this process may not mount anything.
    """
    if folder is None:
        linux.mount("tmpfs", _FOLDER, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        try:
            cover(files, Path(_FOLDER))
        finally:
            linux.unmount(_FOLDER)
        return
    for place, path in write(folder, files).items():
        if Path(place).exists():
            linux.mount(str(path), place, "", linux.MS_BIND)


def of_root(root: Path) -> dict[str, str]:
    """Return the files that ``cover`` has put into the /etc of a process.

    Args:
        root: the root folder of the process, in /proc.
    """
    found: dict[str, str] = {}
    for name in (HOSTS, HOST_NAME, _RESOLVER, _SOURCES):
        with contextlib.suppress(FileNotFoundError):
            file = os.open(root / "etc" / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(file, "rb") as opened:
                found[name] = opened.read(_LONGEST).decode(errors="replace")
    return found
