"""Pages of the site that lie outside ``docs``: mkdocs calls these functions when it builds the site.

The README is the front page; CONTRIBUTING, the READMEs of folders and the API have pages of their own.
Links are written for the repository, and are turned into the site's here.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "dashboards/README.md": "dashboards.md",
    "images/README.md": "images.md",
    "traffic/README.md": "traffic-package.md",
    "fastgrad/README.md": "fastgrad.md",
}
"""Pages outside ``docs``, by their paths in the repository, and what they are called in the site."""
API = {
    "library": (
        "testbed.library.experiment",
        "testbed.library.running",
        "testbed.library.sweeping",
        "testbed.library.reading",
        "testbed.library.comparing",
        "testbed.library.figure",
    ),
    "algorithms": (
        "testbed.algorithms.interface",
        "testbed.algorithms.worker_half",
        "testbed.algorithms.server_half",
        "testbed.algorithms.peer_half",
        "testbed.updates",
    ),
    "training": ("testbed.training.parameter_service", "testbed.training.exchange"),
    "results": ("testbed.results.reading.recorded_run", "testbed.results.tables.comparison"),
    "traffic": ("traffic.accounting", "traffic.capture"),
    "fastgrad": ("fastgrad.gradient", "fastgrad.workers.gradients"),
}
"""Pages of the API: modules that are used from outside."""
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside ``docs``."""
    for path, page in OUTSIDE.items():
        text = (REPOSITORY / path).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for name, modules in API.items():
        text = f"# API: {name}\n\n" + "".join(f"::: {module}\n\n" for module in modules)
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the repository's links of a page into the site's."""
    here = page.file.src_uri
    source = next((path for path, other in OUTSIDE.items() if other == here), f"docs/{here}")
    folder = PurePosixPath(source).parent

    def in_site(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        path = posixpath.normpath(str(folder / target))
        if (REPOSITORY / path).is_dir():
            if not (REPOSITORY / path / "README.md").exists():
                return text  # a folder of records: the site has no page for it
            path = f"{path}/README.md"
        wanted = OUTSIDE.get(path) or path.removeprefix("docs/")
        relative = posixpath.relpath(wanted, posixpath.dirname(here) or ".")
        return f"[{text}]({relative}{anchor})"

    return _LINK.sub(in_site, markdown)
