"""Job 1: corpus -> word counts -> merges -> tokenizer folder."""
