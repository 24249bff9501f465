"""The initramfs: busybox, a few modules and a script that puts the guest's root together.

The format is cpio's "newc", which the kernel unpacks (Documentation/driver-api/early-userspace).
"""

from collections.abc import Iterable
from pathlib import Path

from kernels.debian import Unpacked

NEEDED = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules without which the guest cannot see the host's files."""
_INIT = Path(__file__).with_name("init.sh")
_FILE, _FOLDER = 0o100000, 0o040000


def pack(kernel: Unpacked, busybox: Path) -> bytes:
    """Pack the initramfs of a kernel.

    Raises:
        HostError: the kernel lacks a module of ``NEEDED``.
    """
    modules = kernel.load_order(*NEEDED)
    entries: list[tuple[str, int, bytes]] = [
        (folder, _FOLDER | 0o755, b"")
        for folder in ("bin", "dev", "lower", "modules", "new", "proc", "sys", "upper")
    ]
    entries += [
        ("bin/busybox", _FILE | 0o755, busybox.read_bytes()),
        ("init", _FILE | 0o755, _INIT.read_bytes()),
        ("modules/order", _FILE | 0o644, "".join(f"{m.name}\n" for m in modules).encode()),
    ]
    entries += [(f"modules/{m.name}", _FILE | 0o644, m.read_bytes()) for m in modules]
    return _newc(entries)


def _newc(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return an archive of files and folders, each a name, a mode and a content."""
    archive = bytearray()

    def pad() -> None:
        archive.extend(bytes(-len(archive) % 4))

    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        # inode, mode, uid, gid, links, time, size, two devices' numbers, length of the name, check
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + "".join(f"{field:08x}" for field in fields).encode()
        archive += name.encode() + b"\0"
        pad()
        archive += content
        pad()
    return bytes(archive)
