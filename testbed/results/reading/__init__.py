"""Reading run directories: finding the runs that a person means, and loading their files."""
