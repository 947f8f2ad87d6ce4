"""N-grams of texts, character by character."""

import unicodedata
from collections import Counter


def characters_of(text, strip_accents):
    text = text.lower()
    if not strip_accents:
        return list(text)
    return [c for c in unicodedata.normalize("NFKD", text) if unicodedata.combining(c) == 0]


def runs(characters, inside):
    """The longest runs of characters for which ``inside`` holds."""
    found = [""]
    for c in characters:
        if inside(c):
            found[-1] += c
        elif found[-1]:
            found.append("")
    return [run for run in found if run]


def ngrams(text, longest, longest_of_characters, strip_accents=True):
    """How often each n-gram occurs: of words, and of characters."""
    characters = characters_of(text, strip_accents)
    words = runs(characters, lambda c: c == "_" or c.isalnum())
    of_words = Counter(
        " ".join(words[begin : begin + length])
        for length in range(1, longest + 1)
        for begin in range(len(words))
        if begin + length <= len(words)
    )
    of_characters = Counter()
    for piece in runs(characters, lambda c: not c.isspace()):
        padded = " " + piece + " "
        for begin in range(len(padded)):
            for end in range(begin + 3, len(padded) + 1):
                if end - begin <= longest_of_characters:
                    of_characters[padded[begin:end]] += 1
    return of_words, of_characters


def in_how_many(texts, *settings):
    """In how many texts each n-gram occurs."""
    found = Counter(), Counter()
    for text in texts:
        for total, own in zip(found, ngrams(text, *settings), strict=True):
            total.update(list(own))
    return found
