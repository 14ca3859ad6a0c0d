"""Word counts -> merges: the base alphabet, the incremental merge loop, and its tie rules."""
