"""Grafana dashboards as records, from which their JSON is generated.

``ingress``, ``devices``, ``network`` and ``compare`` say what each dashboard shows: rows of panels, and
the metrics in them. ``panels``, ``tables`` and ``xy`` have the kinds of panels, ``selection`` the
queries and variables, ``colours`` the colours; ``page`` lays every dashboard out.
``python -m dashboards`` writes ``dashboards/json``, which Grafana reads and which is committed; it must
not be edited by hand. Some panels show results of the rules in ``dashboards/prometheus``.
"""
