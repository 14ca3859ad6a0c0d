"""Corpus files -> batches of documents: formats, bad rows, duplicates, weights and order."""
