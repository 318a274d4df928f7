"""Whether another user can reach a file: told before an engine is started, in a sentence that names the culprit."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


def problem(user: str, path: Path, what: str, *, execute: bool = False) -> str | None:
    """Why `user` cannot read (or execute) `path`; None when the permission bits let them."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return f"the engine user {user!r} does not exist on this machine"
    if entry.pw_uid == 0:
        return None
    groups = set(os.getgrouplist(user, entry.pw_gid)[:1])  # engines run without supplementary groups
    need = stat.S_IXOTH if execute else stat.S_IROTH
    for start in dict.fromkeys((Path(os.path.abspath(path)), path.resolve())):  # a link's own folders, and its target's
        for folder in reversed(start.parents):
            if not _allowed(folder, entry.pw_uid, groups, stat.S_IXOTH):
                return f"the user {user!r} cannot reach {what} {path}: {folder} is closed to it"
        if not _allowed(start, entry.pw_uid, groups, need):
            return f"the user {user!r} may not {'run' if execute else 'read'} {what} {path}"
    return None


def _allowed(path: Path, uid: int, groups: set[int], bit: int) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return True  # said better by whoever needs it
    except OSError:
        return False
    if found.st_uid == uid:
        return bool(found.st_mode & (bit << 6))
    if found.st_gid in groups:
        return bool(found.st_mode & (bit << 3))
    return bool(found.st_mode & bit)
