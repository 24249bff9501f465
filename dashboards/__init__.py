"""Grafana dashboards as code, from which their JSON is generated.

``ingress``, ``devices``, ``network`` and ``compare`` define what each dashboard shows, in terms of the
metrics; ``page``, ``panels``, ``tables``, ``xy``, ``colours`` and ``selection`` define how.
``python -m dashboards`` writes ``dashboards/json``, which Grafana reads and which is committed; it must
not be edited by hand. Some panels show results of the rules in ``dashboards/prometheus``.
"""
