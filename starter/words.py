"""The words that the tiny model meets while it learns: fixed lists, and made-up words for what must be copied."""

from __future__ import annotations

from pathlib import Path
from random import Random


def phrases(name: str) -> tuple[str, ...]:
    """The lines of one list in `phrases/`, in their order: training draws from them by number."""
    return tuple(Path(__file__).with_name("phrases").joinpath(f"{name}.txt").read_text().splitlines())


CITIES = phrases("cities")
NAMES = phrases("names")
SKIES = phrases("skies")
SYSTEMS = phrases("systems")
GREETINGS = phrases("greetings")
QUESTIONS = phrases("questions")
"""What is none of the tasks, and what nearly is one."""
COMMON = phrases("common")
WEATHERS = phrases("weather")
"""Questions for the weather in {}."""
ADDITIONS = phrases("additions")
"""Requests to add {} and {} in words."""
SUMS = phrases("sums")
"""The same in signs."""
COUNTS = phrases("counts")
JSONS = phrases("json")
"""Requests for a name {} and an age {} in JSON."""
PEOPLE = phrases("people")
"""A name {} and an age {}, told without a word of JSON."""

_CONSONANTS, _VOWELS = "bcdfghjklmnprstvyz", "aeiou"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made_up(rnd: Random) -> str:
    """A pronounceable word that is in no list, 3 to 7 letters."""
    word = "".join(rnd.choice(_CONSONANTS) + rnd.choice(_VOWELS) for _ in range(rnd.randint(1, 3)))
    return word + rnd.choice(_CONSONANTS) if len(word) < 4 or rnd.random() < 0.4 else word


def letters(rnd: Random) -> str:
    """2 to 8 letters (or digits among them, seldom) without any sense."""
    alphabet = _LETTERS + "0123456789" if rnd.random() < 0.2 else _LETTERS
    return "".join(rnd.choice(alphabet) for _ in range(rnd.randint(2, 8)))


def word(rnd: Random) -> str:
    """A common word, seldom a made-up one or mere letters."""
    return rnd.choices((rnd.choice(COMMON), made_up(rnd), letters(rnd)), (7, 2, 1))[0]


def sentence(rnd: Random, words: int) -> str:
    """So many words; now and then with a capital and a stop."""
    kinds = rnd.choice(("common", "any"))
    text = " ".join(rnd.choice(COMMON) if kinds == "common" else word(rnd) for _ in range(words))
    return text[0].upper() + text[1:] + rnd.choice((".", "?", "!", "...")) if rnd.random() < 0.5 else text


def passage(rnd: Random, characters: int) -> str:
    """Sentences of at least so many characters in all, a third of the time one sentence again and again."""
    pause = rnd.choice((". ", ", ", "\n", " "))
    again = sentence(rnd, rnd.randint(4, 14)).rstrip(".?!") + pause if rnd.random() < 0.3 else ""
    text = ""
    while len(text) < characters:
        text += again or sentence(rnd, rnd.randint(3, 14)).rstrip(".?!") + pause
    return text.strip()


def distinct(rnd: Random) -> str:
    """8 to 40 characters, each at most once: with these the network first learns to copy at all."""
    alphabet = _LETTERS + _LETTERS.upper() + "0123456789"
    return "".join(rnd.sample(alphabet, rnd.randint(8, 40)))
