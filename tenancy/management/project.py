"""What `llmgw cache` and `llmgw keep` have alike: a setting of one project, on or off."""

from __future__ import annotations

from typing import Any

from llmgw.cluster.commands import actor
from tenancy import selectors
from tenancy.actions import limits
from tenancy.models import Project


def row(project: Project, setting: str) -> dict[str, Any]:
    """`in_force` is no where a level says that nothing is kept."""
    said = getattr(project, setting)
    levels = (project.team.organisation, project.team, project)
    forbids = next((level.path for level in levels if level.no_store), None)
    return {
        "project": project.path,
        "on": said is not None,
        **(said or {}),
        "in_force": said is not None and forbids is None,
        "kept_from_it_by": forbids,
    }


def show(path: str, setting: str) -> list[dict[str, Any]]:
    """Of one project; of all that have it on where `path` is empty."""
    found = [selectors.project(path)] if path else selectors.projects().exclude(**{setting: None})
    return [row(project, setting) for project in found]


def change(path: str, setting: str, said: dict[str, Any] | None) -> list[dict[str, Any]]:
    project = limits.change(level=selectors.project(path), terms={setting: said}, actor=actor())
    return [row(project, setting)]
