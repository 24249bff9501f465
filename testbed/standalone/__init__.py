"""An experiment without an orchestrator: each role is a process that somebody else starts.

Compose, for example (``compose/experiment.yml``), or a person on several machines. One process is the
server; it has the experiment file, admits the others (``admission``) and writes the results. The others
need nothing but its name and a secret.
"""
