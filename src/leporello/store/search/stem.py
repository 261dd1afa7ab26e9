"""English word stems by Porter's algorithm, so that a question finds "painted" with "paint", and "went" with "go".

The stem is only ever compared with other stems, in the index and in queries; a stem need not be a word. Words with
digits or other scripts, and very short or long ones, are their own stem.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SHORTEST, _LONGEST = 3, 32
_HAS_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_DOUBLE = re.compile(r"([^aeioulsz])\1$")
_SHORT_END = re.compile(r"[^aeiou](?:[aeiou]|(?<=[^aeiou])y)[^aeiouwxy]$")

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
     "ous", "ive", "ize"),
    "",
)  # fmt: skip

_IRREGULAR_FORMS = """
become became; begin began begun; bend bent; bite bitten; blow blew blown; break broke broken; bring brought; build
built; burn burnt; buy bought; catch caught; choose chose chosen; come came; deal dealt; dig dug; draw drew drawn;
dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt; fight
fought; find found; fly flew flown; forget forgot forgotten; forgive forgave forgiven; freeze froze frozen; get got
gotten; give gave given; go went gone; grow grew grown; hang hung; hear heard; hide hid hidden; hold held; keep kept;
know knew known; lead led; learn learnt; leave left; lend lent; lose lost; make made; mean meant; meet met; pay paid;
ride rode ridden; ring rang rung; run ran; say said; see saw seen; seek sought; sell sold; send sent; shake shook
shaken; shine shone; show shown; sing sang sung; sink sank sunk; sit sat; sleep slept; speak spoke spoken; spend
spent; stand stood; steal stole stolen; stick stuck; strike struck; swear swore sworn; sweep swept; swim swam swum;
take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown; understand understood;
wake woke woken; wear wore worn; win won; write wrote written; child children; person people; man men; woman women;
foot feet; tooth teeth; mouse mice; knife knives; wife wives; half halves
"""
_BASE = {form: base for base, *forms in map(str.split, _IRREGULAR_FORMS.split(";")) for form in forms}


@lru_cache(maxsize=1 << 12)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    word = _BASE.get(word, word)
    if not _SHORTEST <= len(word) <= _LONGEST or not (word.isascii() and word.isalpha()):
        return word
    word = _without_plural(word)
    word = _without_past(word)
    if word.endswith("y") and _HAS_VOWEL.search(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2, at_least=1)
    word = _replaced(word, _STEP_3, at_least=1)
    word = _replaced(word, _STEP_4, at_least=2)
    return _tidy(word)


def openings(stem_: str) -> tuple[str, ...]:
    """Return beginnings of which every word with this stem has exactly one, to look for such words quickly."""
    changes = len(stem_) > 1 and stem_.endswith(("e", "i", "bl"))  # filing, happy, durability
    found: tuple[str, ...] = (stem_[:-1] if changes else stem_,)
    for form in _FORMS_BY_STEM.get(stem_, ()):
        if not form.startswith(found):
            found = (*found, form)
    return found


def _measure(word: str) -> int:
    """Count how often a vowel is followed by a consonant."""
    count, after_vowel, consonant = 0, False, False
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and consonant)
        if after_vowel and not vowel:
            count += 1
        after_vowel, consonant = vowel, not vowel
    return count


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _without_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return _restored(rest) if _HAS_VOWEL.search(rest) else word
    return word


def _restored(rest: str) -> str:
    """Give back what an -ed or -ing took away or doubled: hop(p)ing, hop(e)ing."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _DOUBLE.search(rest):
        return rest[:-1]
    if _measure(rest) == 1 and _SHORT_END.search(rest):
        return rest + "e"
    return rest


def _replaced(word: str, endings: dict[str, str], *, at_least: int) -> str:
    """Replace the longest ending that is in the table, if what is left is long enough."""
    for length in range(min(7, len(word) - 1), 1, -1):
        ending = word[-length:]
        if ending in endings:
            rest = word[:-length]
            fits = _measure(rest) >= at_least and (ending != "ion" or rest.endswith(("s", "t")))
            return rest + endings[ending] if fits else word
    return word


def _tidy(word: str) -> str:
    """Drop a silent e and one of two l at the end."""
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _SHORT_END.search(rest)):
            word = rest
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        word = word[:-1]
    return word


_FORMS_BY_STEM: dict[str, tuple[str, ...]] = {}
for _form in _BASE:
    _FORMS_BY_STEM[stem(_form)] = (*_FORMS_BY_STEM.get(stem(_form), ()), _form)
