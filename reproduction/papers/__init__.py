"""The papers that are reproduced: a module or a folder for each, with a ``PAPER``."""
