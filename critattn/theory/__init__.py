"""Closed forms and quadratures of the theory, in numpy and scipy only: the independent check of the simulation."""
