"""Ids that come one after the other -> text as soon as it is certain."""

import codecs
from collections.abc import Callable, Iterable


class StreamDecoder:
    """Decodes ids in parts; a character whose bytes have not all come is held back.

    The parts joined are what all ids decode to at once.

    Args:
        token_bytes: gives the bytes of an id, as `Tokenizer.decode_bytes` does for a list of one.
        errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], errors: str = "replace") -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: Iterable[int]) -> str:
        """Returns the text that these ids complete.

        Raises:
            UnicodeDecodeError: with `errors` `strict`, for bytes that are not UTF-8; what was held back goes.
        """
        return self._decode(b"".join(map(self._token_bytes, ids)), final=False)

    def finish(self) -> str:
        """Returns what was held back; the decoder can then be used for other ids."""
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, final: bool) -> str:
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._decoder.reset()
            raise
