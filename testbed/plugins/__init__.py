"""Plug-ins: algorithms and other code of users, named in an experiment file.

A plug-in is an object of a Python module. It is named ``module:name``, where the module is installed or
is one of the files that the experiment lists under ``plugins``; or by the short name of an installed
package's entry point. ``source_files`` makes files importable, ``names`` finds objects.
"""
