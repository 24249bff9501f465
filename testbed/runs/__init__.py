"""The parts common to emulated and simulated runs: end, outcome, ledgers, progress, resumption."""
