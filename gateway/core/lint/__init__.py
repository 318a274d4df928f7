"""What in a project's requests keeps an engine from reading a prompt's beginning from its cache. Pure.

An engine reuses what it has read only up to the first byte that differs. `prompt` lays a request out as most chat
templates do, `apart` says where two part and what that costs, `varies` names what it is, `judge` reads them all.
"""
