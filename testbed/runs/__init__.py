"""What every run has, emulated or simulated: an end, an outcome, ledgers, progress, a way to go on."""
