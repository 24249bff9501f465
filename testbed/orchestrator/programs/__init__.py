"""A run of programs of users: their keepers, the faults that strike their devices, the records."""
