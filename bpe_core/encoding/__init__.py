"""Words -> ids and back: the model, added tokens, the word cache, merging of new words, dropout, streaming."""
