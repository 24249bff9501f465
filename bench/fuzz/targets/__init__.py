"""The readers that are fuzzed, a module each; see ``bench.fuzz.readers``."""
