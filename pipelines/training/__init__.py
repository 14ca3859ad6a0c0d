"""Job 1: corpus -> word counts -> merges -> tokenizer folder; and the sweep over vocabulary sizes."""
