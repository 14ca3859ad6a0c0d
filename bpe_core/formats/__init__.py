"""Tokenizer files, ours and other libraries': `tokenizer.json`, `.tiktoken`, `vocab.json` with `merges.txt`, codes."""
