"""Benchmarks: both doors beside their bare counterparts, in one run, as medians and ratios."""
