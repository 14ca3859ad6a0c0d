"""Lines of text files, which end with a line feed and with no other character."""


def split_lines(text: str) -> list[str]:
    r"""Returns the lines of a text: `\n` or `\r\n` ends a line, the last line may lack it.

    `str.splitlines` also splits at characters that tokens may contain, such as U+001C, U+0085 and U+2028.

    >>> split_lines("a\u2028b\r\n\nc\n")
    ['a\u2028b', '', 'c']
    """
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    return [line.removesuffix("\r") for line in lines]
