"""Stands in for the package of that name, with the little of it that our launcher touches."""
