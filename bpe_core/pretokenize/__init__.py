"""Text -> words: normalizers, pre-tokenization patterns, the pattern compiler and scanner, and word counting."""
