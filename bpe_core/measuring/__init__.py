"""Measures of a tokenizer: compression and fairness over a corpus, and an audit of its vocabulary."""
