"""Rehearsals: a cluster of pretended nodes beside a real control plane, bad days, weeks and changes tried before."""
