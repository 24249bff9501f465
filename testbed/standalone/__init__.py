"""An experiment without an orchestrator: each role is a process that is started from outside.

Compose may start them, for example (``compose/experiment.yml``), or a person on several machines. One
process is the server: it has the experiment file, admits the other processes (``admission``) and
writes the results. The others need only the server's name and a secret.
"""
