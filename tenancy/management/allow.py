"""The option `--allow`, the same in every command that makes a level or a key."""

from __future__ import annotations

import argparse


def option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow",
        metavar="MODEL,MODEL",
        help="the models (by name, not alias) that may be used here and below; without it, what the level above allows",
    )


def names(allow: str | None) -> list[str] | None:
    return None if allow is None else [name.strip() for name in allow.split(",") if name.strip()]
