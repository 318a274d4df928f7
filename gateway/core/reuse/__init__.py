"""Giving an answer again: what counts as the same request, what may be kept, and in which form it goes out. Pure."""
