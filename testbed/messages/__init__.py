"""The messages between the processes of one run: a frozen dataclass for each kind, and their codec.

``reports`` go from the roles to the orchestrator, ``requests`` from the orchestrator to the agent, and
``events`` from the agent to the orchestrator. All of them travel over channels of the host
(``testbed.channel``), never over the emulated network.
"""
