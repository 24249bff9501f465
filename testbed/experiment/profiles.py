"""Named devices and links, as ``hardware`` and ``profile`` give them: figures with their sources.

A device's speed is that of one core, relative to a core of a server, for what compilers make of
ordinary programs. Kernels for matrices differ more between processors than that, and a GPU is not in
it: measure the time of a gradient on a device of your own where the figure matters.

Rates of links are what people measure at such lines, not what the technology could do. Sources report
round trips: half of one is assumed to be each direction's delay. A jitter is the most by which a
packet's delay differs from that, either way. A loss is left out where sources only say that it is
small.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from testbed.units import parse_energy, parse_power

Sure: TypeAlias = Literal["quoted", "about", "assumed"]
"""How well a figure is founded: the source has it, it reports about as much, or there is no source."""


@dataclass(frozen=True, slots=True)
class ProfileValue:
    """One figure.

    Attributes:
        value: as in an experiment file.
        source: a key of ``website.publications.SOURCES``; None for what is assumed.
        note: how the value follows from the source; may be empty.
    """

    value: str
    sure: Sure
    source: str | None = None
    note: str = ""


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


_HARDWARE = (
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
HARDWARE = {one.name: one for one in _HARDWARE}
"""The profiles of devices, by name."""


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """A named link.

    Attributes:
        title: what it is, for people.
        delay, jitter, loss: of both directions.
        loss: None: nothing is lost.
        sent, received: joules of a device's radio for each byte; None where no source was found, and
            of lines that are no radio's.
    """

    name: str
    title: str
    uplink: ProfileValue
    downlink: ProfileValue
    delay: ProfileValue
    jitter: ProfileValue
    loss: ProfileValue | None = None
    sent: ProfileValue | None = None
    received: ProfileValue | None = None

    @property
    def costs(self) -> tuple[float | None, float | None]:
        """The joules for each byte sent and received; None where they are not known."""
        return (
            None if self.sent is None else parse_energy(self.sent.value),
            None if self.received is None else parse_energy(self.received.value),
        )

    def keys(self) -> dict[str, object]:
        """Return what the profile gives, as keys of an experiment file."""
        loss = ProfileValue("0%", "assumed") if self.loss is None else self.loss
        directed = {"delay": self.delay, "jitter": self.jitter, "loss": loss}
        return {
            "uplink": self.uplink.value,
            "downlink": self.downlink.value,
            **{key: {"up": one.value, "down": one.value} for key, one in directed.items()},
        }


_LINKS = (
    LinkProfile(
        "dsl",
        "ADSL2+ over a telephone line",
        ProfileValue("1mbit", "about", "Ofcom home"),
        ProfileValue("10mbit", "about", "Ofcom home"),
        ProfileValue("15ms", "about", "FCC", "round trips of DSL are about 20 to 40 ms"),
        ProfileValue("2ms", "assumed"),
    ),
    LinkProfile(
        "vdsl",
        "VDSL: fibre to the cabinet",
        ProfileValue("10mbit", "about", "Ofcom home"),
        ProfileValue("50mbit", "about", "Ofcom home"),
        ProfileValue("8ms", "about", "FCC", "the shorter of the round trips of DSL"),
        ProfileValue("1ms", "assumed"),
    ),
    LinkProfile(
        "cable",
        "coaxial cable (DOCSIS)",
        ProfileValue("20mbit", "assumed"),
        ProfileValue("270mbit", "quoted", "Ofcom home", "270.6 Mbit/s on average"),
        ProfileValue("10ms", "about", "FCC", "round trips are about 15 to 25 ms"),
        ProfileValue("2ms", "assumed"),
    ),
    LinkProfile(
        "fibre",
        "fibre to the home",
        ProfileValue("100mbit", "assumed", None, "contracts differ much"),
        ProfileValue("149mbit", "quoted", "Ofcom home", "149.2 Mbit/s on average"),
        ProfileValue("5ms", "about", "FCC", "round trips are about 10 ms"),
        ProfileValue("500us", "assumed"),
    ),
    LinkProfile(
        "4g",
        "LTE",
        ProfileValue("7.6mbit", "quoted", "Ofcom mobile", "an average"),
        ProfileValue("29.5mbit", "quoted", "Ofcom mobile", "an average"),
        ProfileValue(
            "20ms",
            "about",
            "Ookla",
            "median round trips on mobile networks are 50 to 64 ms; Ofcom's fastest 4G has 18.3 ms",
        ),
        ProfileValue("10ms", "assumed"),
        sent=ProfileValue("3.5uJ", "about", "Huang", "438 mW for each Mbit/s"),
        received=ProfileValue("420nJ", "about", "Huang", "52 mW for each Mbit/s"),
    ),
    LinkProfile(
        "5g",
        "5G, mostly beside a 4G core",
        ProfileValue("14.7mbit", "quoted", "Ofcom mobile", "an average"),
        ProfileValue("129.9mbit", "quoted", "Ofcom mobile", "an average"),
        ProfileValue(
            "10ms",
            "about",
            "Ofcom mobile 2024",
            "the fastest operator's round trips are 16.3 ms on average",
        ),
        ProfileValue("5ms", "assumed"),
    ),
    LinkProfile(
        "wifi",
        "Wi-Fi 5 at home, up to the access point",
        ProfileValue("200mbit", "assumed"),
        ProfileValue("200mbit", "assumed"),
        ProfileValue("2ms", "about", "Sui", "the median is 3 ms, the 90th percentile about 20 ms"),
        ProfileValue("2ms", "assumed"),
        sent=ProfileValue("2.3uJ", "about", "Huang", "283 mW for each Mbit/s, of 802.11 of 2012"),
        received=ProfileValue("1.1uJ", "about", "Huang", "137 mW for each Mbit/s"),
    ),
    LinkProfile(
        "starlink",
        "Starlink, 2022 in Belgium",
        ProfileValue("17mbit", "about", "Michel", "a median of Speedtest"),
        ProfileValue("178mbit", "about", "Michel", "a median of Speedtest"),
        ProfileValue(
            "25ms", "quoted", "Michel", "the median round trip to anchors in Europe is 50 ms"
        ),
        ProfileValue("5ms", "quoted", "Michel", "half of round trips are between 40 and 60 ms"),
        ProfileValue("0.4%", "about", "Michel", "a little loaded; more under load, and in bursts"),
    ),
)
LINKS = {one.name: one for one in _LINKS}
"""The profiles of links, by name."""
