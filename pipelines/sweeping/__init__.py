"""Compares vocabulary sizes: trains the largest, reads the smaller ones off its merges, measures all on one sample."""
