"""Telemetry of a run under way: records from the roles, the run log and the devices' shared memory."""
