"""Texts on which ids must equal those of a reference library: nasty ones, and every code point in context."""

import os
import unicodedata
from collections.abc import Iterator, Sequence

CONTEXTS = ("{}", "a{}", "{}a", " {} ", "a{}b", "{}{}", "▁{}", "{}\u0301\n")
"""Where a code point stands: alone, beside letters and blanks, twice, after SentencePiece's blank, under an accent."""

NEWER_DIGITS = frozenset(map(chr, (*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7))))
"""Digits that Unicode 17 added: `Digits` of the library knows them, our tables of Unicode 16 do not."""

NASTY_TEXTS = (
    "",
    " ",
    "  ",
    "   x",
    "x   ",
    " x  y   z ",
    "\t",
    "\n",
    "a\tb",
    "\t\ta\t \tb",
    "a\r\nb\r\n\r\nc",
    "a\rb",
    "\n\n\n x\n \n",
    "a\x00b\x00",
    "\x01\x02\x7f\x85",
    "▁",
    "▁▁",
    " ▁",
    "▁ ",
    "a▁b",
    "▁a ▁b▁ c",
    " ▁ ▁▁  ▁",
    "x▁</▁>▁</s>",
    ">▁</ > </ ><",
    "\u00a0a\u00a0\u00a0b\u3000c\u2009d\u200be\ufefff\u2028g\u2029h",
    "cafe\u0301 caf\u00e9 \u0301\u0301 a\u0323\u0307 a\u0307\u0323",
    "ﬁ ﬃ Ａｂｃ ① ㍿ ½ ² ™ … ﷺ ｶﾞ",
    "İstanbul ıI ß ẞ Σσς ŐǅǄ Ⅷ",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 1️⃣",
    "中文字符和English混排，日本語のテキスト。한국어 문장입니다",
    "ภาษาไทย हिन्दी বাংলা தமிழ் العربية עִבְרִית አማርኛ ქართული",
    "\U00020000\U0002a6d6𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 🀀",
    "\u0378 \ue000 \U0010ffff \ufffe \ufffd",
    "Hello, y'all! How are you 😁 ? I'm fine, don't you'll we've THEY'RE",
    "1234567890 3.14159 1,000,000 0x1F ١٢٣ १२३ ²³ Ⅻ",
    "a" * 300 + " " + "b" * 700,
    "ab" * 600,
    " " * 700,
    "\n" * 600,
    "é" * 600,
    "中" * 600,
    "👍" * 300,
    "<s>a</s><unk><pad>[CLS] [SEP][MASK] [UNK]<|endoftext|><bos><eos><0x0A><0xFF>",
    "<s> </s>  <s>x </s>y",
    "##a ## #a ##ing a##b",
    "http://example.com/a?b=c&d=%20#e user@example.com C:\\dir\\file.txt",
    "def f(x):\n    return {'a': [1, 2]}  # ok\n\tif x != None && y || z >>= 1;",
    "....,,,,;;;;!!!!????((((]]]]{{{{~~~~````^^^^____----++++====",
    "“quotes” ‘single’ «guillemets» — – … • · ¿ ¡",
    "mixedCASE CamelCaseWord snake_case_word kebab-case-word",
)
"""Runs of blanks, line ends, controls, marks, emoji sequences, special spellings, scripts, long words."""


def make_long_word(size: int = 1_000_000) -> str:
    """Returns one word of so many letters, without a blank and without a short period."""
    letters = "abcdefghijklmnopqrstuvwxyzäöüßéñ"
    state, word = 12345, []
    for _ in range(size):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        word.append(letters[(state >> 16) % len(letters)])
    return "".join(word)


def iterate_code_point_texts(step: int | None = None, contexts: Sequence[str] = CONTEXTS) -> Iterator[list[str]]:
    """Yields code points in all contexts, in lists of about 10,000 texts.

    All code points below U+0600 are taken, and every `step`-th of the others: by default every 13th, or each one if the
    environment variable `EVERY_CODE_POINT` is set. Surrogates are left out. Unassigned code points in the large unused
    planes are sampled, since one is treated as the next.
    """
    step = step or (1 if os.environ.get("EVERY_CODE_POINT") else 13)
    texts: list[str] = []
    first = 0x600 if step < 100 else 0
    for code in (*range(first), *range(first, 0x110000, step)):
        if 0xD800 <= code < 0xE000:
            continue
        if code % 257 and (0x32000 <= code < 0xE0000 or code > 0xE01FF) and unicodedata.category(chr(code)) in "CnCo":
            continue
        texts += [context.replace("{}", chr(code)) for context in contexts]
        if len(texts) >= 10_000:
            yield texts
            texts = []
    if texts:
        yield texts
