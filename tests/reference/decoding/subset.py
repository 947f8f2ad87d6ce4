"""Decoding among the allowed classes only."""

from reference.decoding.argmax import argmax
from reference.decoding.balanced import balanced, hier_f1
from reference.decoding.coherent import coherent
from reference.decoding.common import ROOT
from reference.decoding.conformal import conformal
from reference.decoding.cost import cost
from reference.decoding.expected_f import expected_f
from reference.decoding.leaf import leaf
from reference.decoding.mass import terminal_mass
from reference.decoding.stop import stop
from reference.decoding.top_down import top_down
from reference.taxonomy import ancestors_or_self, descendants_or_self

CLASS_DECODERS = {
    "argmax": argmax,
    "leaf": leaf,
    "top-down": top_down,
    "cost": cost,
    "balanced": balanced,
    "hier-f1": hier_f1,
    "stop": stop,
}


SET_DECODERS = {"coherent": coherent, "expected-f": expected_f, "conformal": conformal}


def allowed_classes(parents, allowed):
    """Return the classes at or below an allowed one."""
    return {d for c in allowed for d in descendants_or_self(parents, c)}


def kept_classes(parents, allowed):
    """Return the classes at or below an allowed one, and all ancestors of these."""
    inside = allowed_classes(parents, allowed)
    return {a for c in inside for a in ancestors_or_self(parents, c)}


def renormalized(row, parents, allowed):
    """Return p given that the row ends in an allowed subtree; all 0 where no mass is there.

    The mass q outside the allowed subtrees goes, their ancestors' own mass with it; the rest is
    divided by its sum; p is then the sum of q at and below each class, each once.
    """
    inside = allowed_classes(parents, allowed)
    mass = terminal_mass(row, parents)
    total = sum(mass[c] for c in inside)
    if total == 0:
        return [0 for _ in parents]
    q = [mass[c] / total if c in inside else 0 for c in range(len(parents))]
    return [sum(q[d] for d in descendants_or_self(parents, c)) for c in range(len(parents))]


def subset(rows, parents, allowed, decoder="argmax", **options):
    """Return what a decoder, given by name, answers among the kept classes for the renormalized p.

    Levels, heights and sizes stay those of the whole hierarchy. Without mass in the allowed
    subtrees: -1, or the empty set.
    """
    keep = kept_classes(parents, allowed)
    out = []
    for row in rows:
        p = renormalized(row, parents, allowed)
        if decoder in CLASS_DECODERS:
            decided = CLASS_DECODERS[decoder]([p], parents, keep=keep, **options)[0]
            nothing = ROOT
        else:
            decided = SET_DECODERS[decoder]([p], parents, keep=keep, **options)[0]
            nothing = [False for _ in parents]
        out.append(decided if any(p) else nothing)
    return out
