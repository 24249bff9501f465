"""Grafana dashboards as code, and what generates their JSON."""
