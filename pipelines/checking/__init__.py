"""Checks of finished outputs: a tokenizer against its corpus or another library, shards against their sources."""
