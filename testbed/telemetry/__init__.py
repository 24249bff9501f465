"""What a run tells while it goes: records from the roles, and the run log they are written to."""
