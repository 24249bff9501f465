"""Named devices, as ``hardware`` gives them to devices.

A speed is that of one core, relative to a core of a server, for what compilers make of ordinary
programs. Kernels for matrices differ more between processors than that, and a GPU is not in it: measure
the time of a gradient on a device of your own where the figure matters.
"""

from dataclasses import dataclass

from testbed.experiment.profiles.profile_value import ProfileValue
from testbed.units import parse_power


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """A named device.

    Attributes:
        title: what it is, for people.
        speed: of one core, relative to ``server-core``.
        cores: their number, which the experiment file cannot say.
        memory: bytes, a limit of containers.
        idle, loaded: watts of the whole device, without work and with work on all cores; None where
            no source was found.
    """

    name: str
    title: str
    speed: ProfileValue
    cores: ProfileValue
    memory: ProfileValue
    idle: ProfileValue | None = None
    loaded: ProfileValue | None = None

    @property
    def draws(self) -> tuple[float, float] | None:
        """The watts of the device when it is idle and while one core computes; None if not known.

        Each core in use is taken to draw as much, so that one has its share of the difference.
        """
        if self.idle is None or self.loaded is None:
            return None
        idle, loaded = parse_power(self.idle.value), parse_power(self.loaded.value)
        return idle, round(idle + (loaded - idle) / int(self.cores.value), 9)

    @property
    def factor(self) -> float:
        """The factor by which computing takes longer than on ``server-core``, to three digits."""
        return float(f"{1 / float(self.speed.value):.3g}")


_TABLE = (
    HardwareProfile(
        "server-core",
        "one core of a server, to which the others are compared",
        ProfileValue("1", "about", "Geekbench", "about 1,500 points"),
        ProfileValue("1", "quoted", "maker"),
        ProfileValue("4GiB", "assumed", None, "what clouds give to a core"),
    ),
    HardwareProfile(
        "phone",
        "a good phone of 2022 (Pixel 7 Pro)",
        ProfileValue("0.9", "quoted", "Notebookcheck", "1,410 points"),
        ProfileValue("8", "quoted", "maker"),
        ProfileValue("12GiB", "quoted", "maker"),
    ),
    HardwareProfile(
        "raspberry-pi-5",
        "Raspberry Pi 5, Cortex-A76 at 2.4 GHz",
        ProfileValue("0.5", "about", "Geekbench", "about 750 points"),
        ProfileValue("4", "quoted", "maker"),
        ProfileValue("8GiB", "quoted", "maker", "there are others"),
        ProfileValue("2.8W", "quoted", "Geerling"),
        ProfileValue("9.7W", "quoted", "Geerling", "stress-ng on all cores"),
    ),
    HardwareProfile(
        "raspberry-pi-4",
        "Raspberry Pi 4, Cortex-A72 at 1.5 or 1.8 GHz",
        ProfileValue(
            "0.25", "about", "leoncode", "0.54 of a Pi 5 there, about 0.43 with Geekbench"
        ),
        ProfileValue("4", "quoted", "maker"),
        ProfileValue("4GiB", "quoted", "maker", "there are others"),
        ProfileValue("1.6W", "quoted", "Geerling"),
        ProfileValue("5W", "quoted", "Geerling", "stress-ng on all cores"),
    ),
    HardwareProfile(
        "jetson-nano",
        "NVIDIA Jetson Nano without its GPU, Cortex-A57 at 1.43 GHz",
        ProfileValue(
            "0.2", "assumed", None, "a generation before the Raspberry Pi 4's cores, and slower"
        ),
        ProfileValue("4", "quoted", "maker"),
        ProfileValue("4GiB", "quoted", "maker"),
    ),
)
HARDWARE = {one.name: one for one in _TABLE}
"""The profiles of devices, by name."""
