"""A generated password: long enough to be safe, and made to be read out and typed. Pure."""

from __future__ import annotations

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # no i, l, o, 0, 1: they are taken for one another
GROUPS, LENGTH = 4, 5
RANDOM_BYTES = 32


def password(random: bytes) -> str:
    """Four groups of five characters (99 bits) of 32 random bytes."""
    number = int.from_bytes(random, "big")
    letters = []
    for _ in range(GROUPS * LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "-".join("".join(letters[i : i + LENGTH]) for i in range(0, len(letters), LENGTH))
