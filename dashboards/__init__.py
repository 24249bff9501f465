"""Grafana dashboards as code, and what generates their JSON.

``ingress``, ``devices``, ``network`` and ``compare`` say what each dashboard shows, in the words of
the metrics; ``page``, ``panels``, ``tables``, ``xy``, ``colours`` and ``selection`` say how.
``python -m dashboards`` writes ``dashboards/json``, which is what Grafana reads and what is committed;
nobody edits it by hand. Some panels show what the rules in ``dashboards/prometheus`` compute.
"""
