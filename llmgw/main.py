"""The console script `llmgw`: `llmgw node list` is `manage.py node list`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
