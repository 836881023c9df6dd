"""Estimates with 95 % intervals from observations in clusters.

An observation is what one round measured on all alternatives, one right after the other. A cluster is a set of processes that lived through
several rounds: layout and luck differ more between processes than between rounds, so the bootstrap draws clusters first, then rounds in them.
"""

import random
import statistics

median = statistics.median


def estimate(clusters, value):
    """value: function from a list of observations to one number."""
    return statistics.fmean(value(cluster) for cluster in clusters)


def interval(clusters, value, draws=400):
    """-> (estimate, low, high), deterministic for the same observations."""
    generator = random.Random(1)
    results = []
    for _ in range(draws):
        chosen = generator.choices(clusters, k=len(clusters)) if len(clusters) > 1 else clusters
        results.append(estimate([generator.choices(cluster, k=len(cluster)) for cluster in chosen], value))
    results.sort()
    return estimate(clusters, value), results[int(0.025 * draws)], results[min(draws - 1, int(0.975 * draws))]


def ratio(above, below):
    """value(): ratio of the medians of two fields."""
    return lambda rounds: median(r[above] for r in rounds) / median(r[below] for r in rounds)


def difference(more, less):
    return lambda rounds: median(r[more] for r in rounds) - median(r[less] for r in rounds)


def wanted_half_width(bar, relative):
    """A ratio: half the distance from 1 to the bar, and not more than a quarter of the bar (bars far below 1). Otherwise a quarter of the bar."""
    return min(abs(bar - 1) / 2, bar / 4) if relative else bar / 4
