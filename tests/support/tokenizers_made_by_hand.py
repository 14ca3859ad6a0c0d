"""Makes tokenizers with merges that training would not give."""

import json

from bpe_core import Tokenizer


def make_tokenizer_with_merges(
    pairs: list[list[str]], *, ignore_merges: bool = False, more: tuple[str, ...] = ()
) -> Tokenizer:
    """Returns a tokenizer of kind `byte` with these merges, and with `more` tokens that no merge makes."""
    content = json.loads(Tokenizer.train(["x"], num_merges=0).files()["tokenizer.json"])
    vocab = content["model"]["vocab"]
    for token in [*("".join(pair) for pair in pairs), *more]:
        vocab.setdefault(token, len(vocab))
    content["model"] |= {"merges": pairs, "ignore_merges": ignore_merges}
    return Tokenizer.from_json(json.dumps(content))
