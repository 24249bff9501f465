"""An experiment without an orchestrator: each role is a process of its own.

Compose (``compose/experiment.yml``) or a person starts the processes, on one machine or on several. The
server's has the experiment file, admits the others (``admission``) and writes the results. The others,
further servers (``shards``) among them, need only the server's name and a secret.
"""
