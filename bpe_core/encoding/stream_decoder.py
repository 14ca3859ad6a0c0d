"""Decodes ids that arrive one after the other to text, as soon as each character is complete."""

import codecs
from collections.abc import Callable, Iterable


class StreamDecoder:
    """Decodes ids in parts; a character whose last bytes have not arrived yet is held back.

    Joined, the parts are the text that all ids decode to at once.

    >>> decoder = StreamDecoder(lambda id_: bytes([id_]))
    >>> [decoder.push([97, 0xC3]), decoder.push([0xA9]), decoder.finish()]
    ['a', 'é', '']

    Args:
        token_bytes: returns the bytes of an id.
        errors: what to do with bytes that are not UTF-8, as for `bytes.decode`.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], errors: str = "replace") -> None:
        """Starts with nothing held back."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, ids: Iterable[int]) -> str:
        """Returns the characters that these ids complete.

        Raises:
            UnicodeDecodeError: with `errors="strict"`, the bytes are not UTF-8. Bytes held back are dropped.
        """
        return self._decode(b"".join(map(self._token_bytes, ids)), final=False)

    def finish(self) -> str:
        """Returns what was held back, as an incomplete character; the decoder can then be used for other ids.

        Raises:
            UnicodeDecodeError: with `errors="strict"`, bytes were held back.
        """
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, final: bool) -> str:
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._decoder.reset()
            raise
