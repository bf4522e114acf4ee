"""Medians, percentiles and their confidence. Samples come in rounds, one list of numbers a round.

Runs of one round share the machine's mood of that moment, so the bootstrap draws whole rounds, and
for a ratio it draws the same rounds of both sides.
"""

import math
import random
import statistics


def flat(rounds):
    return [value for one in rounds for value in one]


def percentile(values, share):
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(rounds):
    return statistics.median(flat(rounds))


def interval(rounds, against=None, draws=1000, seed=1):
    """The 95 % bootstrap interval of the median, or of the ratio of the medians of two commands that
    were run in the same rounds."""
    if against is not None and len(against) != len(rounds):
        raise ValueError("the two commands have different rounds")
    chance, values = random.Random(seed), []
    for _ in range(draws):
        chosen = [chance.randrange(len(rounds)) for _ in rounds]
        value = median([rounds[i] for i in chosen])
        if against is not None:
            value /= median([against[i] for i in chosen])
        values.append(value)
    return percentile(values, 0.025), percentile(values, 0.975)


def difference_interval(rounds, against, draws=1000, seed=1):
    """The same of the difference of the medians of two commands that were run in the same rounds."""
    if len(against) != len(rounds):
        raise ValueError("the two commands have different rounds")
    chance, values = random.Random(seed), []
    for _ in range(draws):
        chosen = [chance.randrange(len(rounds)) for _ in rounds]
        values.append(median([rounds[i] for i in chosen]) - median([against[i] for i in chosen]))
    return percentile(values, 0.025), percentile(values, 0.975)
