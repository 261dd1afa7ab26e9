"""Names of models, which everybody writes a little differently."""

import re

_VERSION_DASH = re.compile(r"(?<=\d)-(?=\d(?![\dbk]))")


def plain_name(name: str) -> str:
    """Write a name one way: lower case, a dot in version numbers ("4-5" is "4.5"; "3-8b" and "1-8k" are sizes)."""
    return _VERSION_DASH.sub(".", name.strip().lower())
