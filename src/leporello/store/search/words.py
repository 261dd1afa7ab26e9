"""English words that carry a question's grammar, not its subject."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENERS: Final = _words("""
    what when where which who whom whose why how
    am are can could did do does had has have is may might must shall should was were will would
""")
"""Words with which a question begins."""

REQUESTS: Final = _words("describe explain find list name recall remember remind show summarise summarize tell")
"""Words with which a request in a sentence begins; such a word alone does not make one."""

STOP_WORDS: Final = OPENERS | _words("""
    a about above after again against all also an and any as at be because been before being below between both but by d
    didn doesn doing don down during each ever few for from further hadn hasn haven having he her here hers herself him
    himself his i if in into isn it its itself just ll m me more most my myself no nor not now of off on once only or
    other our ours ourselves out over own per re s same she so some still such t than that the their theirs them
    themselves then there these they this those through to too under until up upon us ve very via wasn we weren while
    with won wouldn you your yours yourself yourselves
""")
"""Words that a question is not about."""
