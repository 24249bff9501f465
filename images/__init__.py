"""Build the Docker image that serves all roles."""
