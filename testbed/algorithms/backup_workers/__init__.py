"""Rules that choose the number of backup workers while a run goes on (Xu et al., paper 004).

``dynamic`` has DBW and B-DBW, made of the estimators in ``gain`` and ``iteration_times``; ``adasync``
has the rules that paper 004 compares them with.
"""
