"""Give up the right to write outside some folders, then become another program: Landlock, Linux 5.13 and later.

    python -I -S landlock.py FOLDER... -- PROGRAM ARGUMENT...

It needs no privileges and cannot be undone by the program or by what that starts. Reading files stays as it was, but
the memory of processes outside is out of reach, and from Linux 6.12 on so are signals to them. It is started as a file,
with nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from typing import Final

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every processor that is in use
_VERSION_FLAG, _RULE_PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_SIGNALS_SINCE, _SIGNALS = 6, 1 << 1

_WRITE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES: Final = _WRITE | sum(1 << bit for bit in range(4, 13))  # remove and make: files, folders, links, devices, …
_SINCE: Final = {2: 1 << 13, 3: _TRUNCATE}  # moving between folders, and cutting off, came with later versions


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # what packing means; from Python 3.14 on it has to be said
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock that this kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)))


def restrict(places: list[str]) -> None:
    """Allow this process and its children to change only what is in these folders, or these files."""
    known = version()
    changes = _CHANGES | sum(right for since, right in _SINCE.items() if known >= since)
    rules = _Rules(files=changes, network=0, scoped=_SIGNALS if known >= _SIGNALS_SINCE else 0)
    size = ctypes.sizeof(rules) if known >= _SIGNALS_SINCE else ctypes.sizeof(ctypes.c_uint64)
    ruleset = _checked(_libc().syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0))
    for place in places:
        _allow(ruleset, place, changes)
    _checked(_libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_libc().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, place: str, changes: int) -> None:
    descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    beneath = _Beneath(allowed=changes if is_folder else changes & (_WRITE | _TRUNCATE), folder=descriptor)
    _checked(_libc().syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0))
    os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main() -> None:
    """Restrict this process and run the program in its place."""
    end = sys.argv.index("--")
    places, program = sys.argv[1:end], sys.argv[end + 1 :]
    try:
        restrict(places)
    except OSError as error:
        sys.exit(f"the command was not run, because it could not be bounded to the workspace: {error}")
    os.execv(program[0], program)  # noqa: S606 - the program is the whole purpose


if __name__ == "__main__":
    main()
