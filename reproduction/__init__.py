"""Reproduces papers: carries out the runs of their figures and tables, and writes pages of them."""
