"""The table of how busy a run's devices were: a row for each part, and for each of a few devices."""

from collections.abc import Callable, Sequence

from testbed import number_text as q
from testbed.drawing import link_labels
from testbed.results.reading.recorded_run import RecordedRun
from testbed.run_tables import DeviceUtilisation

_HEADINGS = ("devices", "processor in use", "sent", "uplink in use", "received", "downlink in use")
_OPTIONAL = {"message_wait": "messages waited", "joules": "energy"}
"""The headings of columns that a run has only if they are known of any device."""
NO_ENERGY = (
    "no energy is known: the devices have no figures of power, from `hardware` or `power` "
    "(docs/links.md)"
)
MOST_DEVICES = 20
"""The most devices of one part that have a row each."""


def headings(run: RecordedRun) -> tuple[str, ...]:
    """Return the columns' headings."""
    return (*_HEADINGS, *(_OPTIONAL[column] for column in _known(run)))


def _known(run: RecordedRun) -> list[str]:
    """Return the columns that not every run has, as far as they are known of any device."""
    return [
        column
        for column in _OPTIONAL
        if any(getattr(one, column) is not None for one in run.utilisation)
    ]


def utilisation_rows(run: RecordedRun) -> list[tuple[str, ...]]:
    """Return the cells of each row: a part, and its devices below it; none without a table."""
    found, known = [], _known(run)
    for part in dict.fromkeys(one.part for one in run.utilisation):
        devices = [one for one in run.utilisation if one.part == part]
        name = link_labels.several([one.device for one in devices])
        found.append(_cells(name, devices, known))
        if 1 < len(devices) <= MOST_DEVICES:
            found += [_cells(one.device, [one], known) for one in devices]
    return found


def in_words(run: RecordedRun) -> str:
    """Return what the numbers are, in sentences; empty without a table."""
    if not run.utilisation:
        return ""
    if run.manifest.clock == "virtual":
        text = (
            "Processor: the time for which a device computed gradients, or a server handled messages, "
            "÷ the time of training, by the virtual clock."
        )
    else:
        text = (
            "Processor: the processor time of a device's processes ÷ (the time of training × the "
            "processors that it may use, or 1)."
        )
    entry = run.summary.utilisation
    remarks = entry.remarks if entry else ()
    sentences = (remark[0].upper() + remark[1:] + "." for remark in remarks)
    links = "Links: bits ÷ (rate × time of training), means with extremes."
    return " ".join([text, links, *sentences, *_of_energy(run)])


def _of_energy(run: RecordedRun) -> list[str]:
    """Return what the energy is, in sentences, or why there is none."""
    found = run.summary.energy
    if found is None:
        return [f"{NO_ENERGY[0].upper()}{NO_ENERGY[1:]}."]
    remarks = (f"{remark[0].upper()}{remark[1:]}." for remark in found.remarks)
    total = (
        f"Energy: {q.as_energy(found.joules)} of {q.as_number(found.devices, 'device')} together."
    )
    return [total, *remarks]


def _cells(
    name: str, devices: Sequence[DeviceUtilisation], known: Sequence[str]
) -> tuple[str, ...]:
    """Return a row's cells; ``known`` are the columns that not every run has, of those it has."""
    each = " each" if len(devices) > 1 else ""

    def share(column: str) -> str:
        return _spread([getattr(one, column) for one in devices], link_labels.as_percent)

    def size(column: str) -> str:
        text = _mean([getattr(one, column) for one in devices], q.as_bytes)
        return text if text == q.UNKNOWN else text + each

    energy = _mean([one.joules for one in devices], q.as_energy)
    more = {
        "message_wait": _spread([one.message_wait for one in devices], q.as_milliseconds),
        "joules": energy if energy == q.UNKNOWN else energy + each,
    }
    return (
        name,
        share("cpu_utilisation"),
        size("sent_bytes"),
        share("uplink_utilisation"),
        size("received_bytes"),
        share("downlink_utilisation"),
        *(more[column] for column in known),
    )


def _mean(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    known = [one for one in values if one is not None]
    return text(sum(known) / len(known)) if known else q.UNKNOWN


def _spread(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Return the mean as text, with the least and the greatest value if there are several."""
    known = [one for one in values if one is not None]
    mean = _mean(known, text)
    extremes = link_labels.span(known, text) if known else mean
    return mean if extremes == mean else f"{mean} ({extremes})"
