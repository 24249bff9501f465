"""The sources of the profiles' figures, by short names, and how sure a figure is."""

from dataclasses import dataclass

from testbed.experiment.profiles import Sure


@dataclass(frozen=True, slots=True)
class Publication:
    """A public report or paper."""

    title: str
    url: str


SOURCES = {
    "FCC": Publication(
        "FCC, *Measuring Fixed Broadband, Thirteenth Report* (measured in September and October 2022)",
        "https://www.fcc.gov/general/measuring-broadband-america",
    ),
    "Ofcom home": Publication(
        "Ofcom, *UK home broadband performance, March 2023*, as reported on 14 September 2023",
        "https://www.lscprom.co.uk/ofcom/latest-trends-in-home-broadband-performance-revealed-14-09-23/",
    ),
    "Ofcom mobile": Publication(
        "Ofcom, *Mobile Matters 2023*, Opensignal's crowdsourced data, as reported on 21 July 2023",
        "https://www.ispreview.co.uk/index.php/2023/07/"
        "ofcom-publish-benchmarks-of-uk-5g-4g-and-3g-mobile-networks.html",
    ),
    "Ofcom mobile 2024": Publication(
        "Ofcom, *Mobile Matters 2024*, as reported",
        "https://geekabit.co.uk/category/ofcom",
    ),
    "Ookla": Publication(
        "Ookla, *Speedtest Intelligence*, United States, fourth quarter of 2023, as reported",
        "https://www.phonearena.com/news/t-mobile-fastest-us-carrier_id154401",
    ),
    "Sui": Publication(
        "Sui et al., *Characterizing and Improving WiFi Latency in Large-Scale Operational Networks*, "
        "MobiSys 2016",
        "https://doi.org/10.1145/2906388.2906393",
    ),
    "Michel": Publication(
        "Michel et al., *A First Look at Starlink Performance*, IMC 2022, and the authors' summary",
        "https://blog.apnic.net/2022/11/28/fact-checking-starlinks-performance-figures",
    ),
    "Geekbench": Publication(
        "Geekbench 6, single core; results that users have uploaded",
        "https://browser.geekbench.com/",
    ),
    "Notebookcheck": Publication(
        "Notebookcheck, *Geekbench 6: iPhone 14 Pro Max, Galaxy S23 Ultra and Pixel 7 Pro* (2023)",
        "https://notebookcheck.com/Geekbench-6-Apple-iPhone-14-Pro-Max-stellt-sich-Samsung-Galaxy-S23-"
        "Ultra-und-Google-Pixel-7-Pro-in-neuem-Benchmark.694639.0.html",
    ),
    "leoncode": Publication(
        "*Raspberry Pi CPU Benchmarks*: sysbench on one core, Pi 4: 1,477.83 events/s, Pi 5: 2,737.49",
        "https://leoncode.co.uk/articles/raspberry-pi-benchmarks",
    ),
    "Geerling": Publication(
        "Geerling, *SBC Reviews*: the results of his boards, power at the wall (as of 2025)",
        "https://github.com/geerlingguy/sbc-reviews",
    ),
    "Huang": Publication(
        "Huang et al., *A Close Examination of Performance and Power Characteristics of 4G LTE "
        "Networks*, MobiSys 2012: the power of a phone's radio against its throughput",
        "https://doi.org/10.1145/2307636.2307658",
    ),
    "maker": Publication("the maker's data sheet", ""),
}
SURE: dict[Sure, str] = {
    "quoted": "the source, or an article about it, has this figure",
    "about": "the size of what the source reports, rounded, and not compared with it figure by figure",
    "assumed": "plausible; no source was found",
}
