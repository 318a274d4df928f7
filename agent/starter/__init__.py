"""The model that ships in the wheel: `starter:tiny` names a file beside this one, so a first answer needs no download.

It is made by `starter/train.py` of the source tree. Only the standard library is imported here: a node reads this.
"""

from __future__ import annotations

from pathlib import Path

SHA256 = {
    "tiny": "329d721ef267830fa413e45f27c2d0c8f837312a4154ce1224c0a8ebf697c8b6",
}
"""Name → SHA-256 (hex) of its file. `starter/train.py` prints the line to put here."""


class UnknownStarter(LookupError):
    """Nothing of this name ships; the sentence says what does."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no starter model is called {name!r}; there is: {', '.join(sorted(SHA256))}")
        self.name = name


def path(name: str) -> Path:
    """The GGUF file of a starter model (`tiny` of `starter:tiny`). Raises `UnknownStarter`."""
    if name not in SHA256:
        raise UnknownStarter(name)
    return Path(__file__).with_name(f"{name}.gguf")


def sha256(name: str) -> str:
    """The SHA-256 (hex) that the file of a starter model must have. Raises `UnknownStarter`."""
    if name not in SHA256:
        raise UnknownStarter(name)
    return SHA256[name]
