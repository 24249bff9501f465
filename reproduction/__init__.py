"""Reproduces the AdaComp paper: carries out the runs of its figures and table, and writes pages."""
