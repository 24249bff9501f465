"""The messages between the processes of one run: a frozen dataclass for each kind, and their codec.

``reports`` go from the roles to the orchestrator, ``requests`` from the orchestrator to the agent,
``events`` from the agent to the orchestrator; ``processes`` are between the agent and what runs roles.
All of them travel over channels of the host (``testbed.channel``), never over the emulated network.
"""
