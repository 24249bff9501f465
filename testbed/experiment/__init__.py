"""The experiment file: its contents (``spec``, ``units``), and reading and writing it (``load``).

This file must import nothing, so that a module that needs one part does not load the others.
"""
