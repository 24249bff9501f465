"""Builds the Docker image that serves all roles."""
