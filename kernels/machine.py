"""Boot a kernel in QEMU to run a script, and leave the files that the script writes in a folder.

The guest always ends: by itself, killed at a limit, or killed with the process that started it. It has
no network device, or one that a cable joins to another guest's; its files are the host's, read-only. It
uses no hardware virtualisation, so that it runs in any container and on any machine, at a twentieth of
the speed.

Trap: with ``-cpu max`` QEMU 7.2 emulates AVX2 wrongly (NumPy's argsort of 64-bit integers returns a
wrong order); a Nehalem has no AVX2.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.debian import Unpacked
from kernels.initramfs import pack
from testbed.errors import HostError, RunError

MEMORY = 3072
"""The guest's memory, MiB."""
QEMU = "qemu-system-x86_64"
_STATUS = "status"
NO_NETWORK: Sequence[str] = ("-nic", "none")


@dataclass(frozen=True, slots=True)
class Booted:
    """The outcome of a boot.

    Attributes:
        status: the script's exit status.
        seconds: time that the boot and the script took.
    """

    status: int
    seconds: float


def check() -> Path:
    """Check that a guest can be booted here; return busybox's path.

    Raises:
        HostError: a program or memory is missing.
    """
    if shutil.which(QEMU) is None:
        raise HostError(f"{QEMU} is not installed: apt-get install qemu-system-x86")
    busybox = shutil.which("busybox")
    if busybox is None or b"/ld-linux" in Path(busybox).read_bytes():
        raise HostError("a static busybox is not installed: apt-get install busybox-static")
    available = _memory_available()
    if available < MEMORY + 512:
        raise HostError(
            f"the guest needs {MEMORY + 512:,} MiB of memory and {available:,} MiB are available: end "
            "other programs"
        )
    return Path(busybox)


def _memory_available() -> int:
    """Return the memory available on this host, MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def cable(folder: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the network of each of two guests that a cable joins, which nothing else can reach.

    Args:
        folder: for the cable's ends, Unix sockets.
    """

    def end(own: str, other: str) -> Sequence[str]:
        ways = ",".join(
            f"{side}.type=unix,{side}.path={folder}/{name}"
            for side, name in (("local", own), ("remote", other))
        )
        device = f"virtio-net-pci,netdev=cable,romfile=,mac=52:54:00:00:00:0{own}"
        return ("-netdev", f"dgram,id=cable,{ways}", "-device", device)

    return end("1", "2"), end("2", "1")


def boot(
    kernel: Unpacked,
    script: str,
    results: Path,
    limit: float,
    show: Callable[[str], None],
    *,
    network: Sequence[str] = NO_NETWORK,
) -> Booted:
    """Boot a kernel, run a script in it as root, and wait for its end.

    Args:
        script: for sh; what it writes below /run/kernels/results is in ``results`` afterwards.
        results: an empty folder.
        limit: seconds after which the guest is killed.
        show: called with each line of the guest's console.
        network: QEMU's options for it; see ``cable``.

    Raises:
        HostError: no guest can be booted here.
        RunError: the script did not end; the message has the last lines of the console.
    """
    busybox = check()
    (results / "start.sh").write_text(
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp\n"
        f"(\n{script}\n)\n"
        f"echo $? >/run/kernels/results/{_STATUS}\n"
        "/run/kernels/bin/poweroff -f\n"
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="testbed-kernels-") as made:
        initramfs, console = Path(made) / "initramfs", Path(made) / "console"
        initramfs.write_bytes(pack(kernel, busybox))
        console.touch()
        command = _command(kernel, initramfs, console, results, network)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        lines: list[str] = []

        def keep(line: str) -> None:
            lines.append(line)
            show(line)

        try:
            in_time = _follow(process, console, began + limit, keep)
        finally:
            process.kill()
            complaint = process.communicate()[0].decode(errors="replace").strip()
    status = results / _STATUS
    if status.exists():
        return Booted(int(status.read_text()), time.monotonic() - began)
    last = "\n".join(lines[-40:])
    if not in_time:
        raise RunError(f"{kernel.version} did not end within {limit:g} s; its last output:\n{last}")
    raise RunError(
        f"{kernel.version} ended before its script ({complaint or 'without a message of QEMU'}); its "
        f"last output:\n{last}"
    )


def _command(
    kernel: Unpacked, initramfs: Path, console: Path, results: Path, network: Sequence[str]
) -> list[str]:
    shares = []
    for tag, path, writable in (
        ("root", Path("/"), False),
        ("modules", kernel.modules, False),
        ("results", results, True),
    ):
        # QEMU ends an option's value at a comma, unless it is doubled.
        where = str(path.resolve()).replace(",", ",,")
        share = f"local,path={where},mount_tag={tag},security_model=none,multidevs=remap"
        shares += ["-virtfs", share if writable else f"{share},readonly=on"]
    return [
        # Otherwise a guest would outlive the process that started it.
        *("setpriv", "--pdeathsig", "KILL"),
        QEMU,
        *("-accel", "tcg,thread=multi", "-smp", "2", "-cpu", "Nehalem", "-m", str(MEMORY)),
        *("-nodefaults", "-display", "none", "-no-reboot", *network),
        *("-serial", f"file:{console}"),
        *("-kernel", str(kernel.image), "-initrd", str(initramfs)),
        *("-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off"),
        *shares,
    ]


def _follow(
    process: subprocess.Popen[bytes], console: Path, deadline: float, show: Callable[[str], None]
) -> bool:
    """Pass on the console by lines until the guest ends (True) or the deadline has passed (False)."""
    with console.open("rb") as reading:
        rest = b""
        while True:
            ended = process.poll() is not None
            *complete, rest = (rest + reading.read()).split(b"\n")
            for line in complete:
                show(line.decode(errors="replace").rstrip("\r"))
            if ended or time.monotonic() > deadline:
                if rest:
                    show(rest.decode(errors="replace"))
                return ended
            time.sleep(0.1)
