"""The sections of an experiment file, one module for each."""
