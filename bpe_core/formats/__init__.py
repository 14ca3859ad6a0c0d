"""The files that tokenizers are stored in: ours and those of other libraries, one module for each family of files.

`tokenizer_folder` knows which files make a tokenizer, and finds them. `tokenizer_json` reads and writes
`tokenizer.json`, in the layout of Hugging Face tokenizers (`hugging_face_layout`, `hugging_face_steps`) or our own
(`own_layout`); `shared_entries` is what both layouts have in common. `tiktoken`, `tekken`, `vocab_and_merges` and
`subword_nmt` are other formats. `ranks` decides when tiktoken's ranks and a list of merges give the same tokens.
"""
