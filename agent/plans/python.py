"""What vLLM and SGLang have in common: a Python environment that ends by computing something on a card."""

from __future__ import annotations

from agent.plans.steps import Check

_COMPUTE = """
import sys, torch
full = 0
for device in range(torch.cuda.device_count()):
    try:
        ones = torch.ones((64, 64), device=f"cuda:{device}")
        print("computed", int((ones @ ones).sum().item()), "on", torch.cuda.get_device_name(device))
        sys.exit(0)
    except torch.OutOfMemoryError:
        full += 1
sys.exit("every card is full" if full else "PyTorch sees no card")
"""
_VERSION = "import importlib.metadata as m, torch; print({name!r}, m.version({name!r}), 'torch', torch.__version__)"

GIB = 2**30
ROOM_BYTES = 25 * GIB
PYTHON = "3.12"


def computes(what: str) -> Check:
    return Check(
        ("python", "-c", _COMPUTE),
        r"computed 262144 on ",
        f"{what} cannot compute on a card of this node",
        timeout_s=300.0,
        later=r"every card is full",
    )


def there(package: str, version: str) -> Check:
    """Cheap enough for every ten minutes: a library that was taken away shows when PyTorch is loaded."""
    expect = rf"{package} {version.replace('.', '[.]')}([+.].*)? torch "
    otherwise = f"its environment does not hold {package} {version}"
    return Check(("python", "-c", _VERSION.format(name=package)), expect, otherwise, timeout_s=120.0)
