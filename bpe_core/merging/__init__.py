"""Learns merges from word counts: base symbols, settings, the incremental merge loop, and its tie rules."""
