"""The measurements of a run under the wall clock that tell if its host was fast enough."""
