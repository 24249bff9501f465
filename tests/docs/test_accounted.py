"""Every code block is run by a test, or is listed here with the reason why it is not."""

from tests.docs.blocks import blocks
from tests.docs.test_tutorial import PAGE as TUTORIAL  # which compares all of them

RUN = {"python", "yaml", "sh", "csv"}
"""Languages of which the tests of this folder run every block."""
NOT_RUN = {
    "from testbed.algorithms.plain_asgd": "lines of a file, to which test_python_blocks adds them",
    "run             seed  state": "what the quickstart printed; compared with its record",
    "run                seed  state": "a record of `testbed simulate`; so is this",
    "run                                     emulated in": "what `make agree` printed; so is this",
    "                                                            single queue": "a record",
    "quickstart/": "what `testbed traffic` printed; so is this",
    "     seconds  from → to": "lines of `testbed traffic --frames`; end_to_end/test_traffic has such",
    "  links       8 of 20 shaped links": "lines of `testbed show`; figures differ by run",
    "  fidelity    did not keep up": "what `testbed show` printed; results/test_fidelity has such",
    "wall/20261128-130819-1/asgd beside": "what `testbed dilate` printed; it differs by run",
    "slow/20261128-130945-1/asgd beside": "so is this",
    "a question, one parameter": "what `python -m bench.costs` printed; it differs by host",
    "busy  training  idle": "what `python -m bench.fidelity` printed; so is this",
    "  50 routers    sndlib/germany50": "a line of `testbed plan`",
    "run                          state     engine": "what `testbed top` printed; it differs by run",
    "pages: http://127.0.0.1": "the address that `testbed serve` printed; its token differs",
    "default via 10.77.0.10 dev eth0": "what `testbed exec` printed; test_exec compares its own",
    "  class phones: profile 4g": "lines of `testbed plan`; test_profiles compares them",
    "testbed plan flower-at-home.yaml": "commands on the file above; test_program_examples runs Flower",
    "direction        port      program": "what `testbed traffic` printed; it differs by run",
    "device,time,event": "a file; end_to_end/test_presence has one",
    "network of clusters-adacomp:": "what `testbed plan` printed; cli/test_plan_network compares",
    "network of co-located-adacomp:": "so is this",
    "experiment file ─► experiment (Spec)": "a drawing",
    "cli | library": "layers; test_architecture compares them with pyproject.toml",
    "plugins: [rules.py]": "lines of a file that experiment/test_plugins loads",
    "plugins: [pictures.py]": "lines of examples/plugin/pictures.yaml",
    "dataset: {name: huggingface": "needs a saved dataset; learning/data/test_huggingface saves some",
    "whole = whole.add_column(": "lines for Flower's library, which is not installed here",
    'loss: {name: "rules:huber"': "lines of a file; end_to_end/test_losses has such a one",
    '[project.entry-points."testbed': "lines of a pyproject.toml; plugins/test_names has one",
    "diagnostics = (*SynchronousSgd.diagnostics": "lines of a class",
    "Link(node, index, uplink": "types",
    "class Algorithm:": "an interface",
    "star      for worker in": "lines of its subclasses",
    "worker i                                     server": "a drawing",
    "peer j                                       peer i": "a drawing",
    "ray start --head": "tests/sweeps/test_cluster.py starts such nodes",
    'WORKERS = Key("devices.workers"': "lines of a paper; tests/reproduction/invented.py has them",
}
"""Blocks without a language by their beginning, with the reason why they are not run."""


def test_every_block_is_run_or_listed() -> None:
    listed = dict.fromkeys(NOT_RUN, 0)
    unknown = []
    for block in blocks():
        if block.language in RUN or block.page == TUTORIAL:
            continue
        known = [begins for begins in NOT_RUN if block.first.startswith(begins)]
        if block.language or len(known) != 1:
            unknown.append(f"{block} ```{block.language}: {block.first}")
        for begins in known:
            listed[begins] += 1
    assert unknown == []
    assert {begins: count for begins, count in listed.items() if count != 1} == {}
