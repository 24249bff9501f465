"""What happens to devices that is not their own doing: who, when, how, and for how long.

Everything is decided here from the seed, whatever clock the run has and however often it is asked;
nothing is done here. Who does it is the virtual clock, or the orchestrator and its agent.
"""
