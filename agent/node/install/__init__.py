"""Engines on this node: fetched, unpacked, built, checked, kept and removed as plans (`agent.plans`) say.

The heavy part runs in a process of its own (`worker`), low in priority, which may be killed at any moment.
"""
