"""The known-answers corpus: synthetic bilingual documents with planted words, made in memory.

A good vocabulary has one token for each frequent planted word (`POSITIVES`), and several tokens for each rare long word
(`NEGATIVES`). Chinese documents have a space between words.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.reading.formats.raw_rows import FileSlice, RawRows, make_batches
from pipelines.settings.corpus import Corpus

POSITIVES = ("模型", "训练", "语言", "词表", "分词", "token", "model", "data")
"""Frequent words, which should be one token."""
NEGATIVES = ("quixotism", "xylophone", "flibbertigibbet")
"""Rare words, which should be several tokens."""
RARE_CHARACTERS = ("齉", "彧", "鑫")
"""Characters as rare as `NEGATIVES`."""

NUM_ENGLISH, NUM_CHINESE = 484, 164
_NUM_DOCUMENTS = NUM_ENGLISH + NUM_CHINESE

_ENGLISH = (
    "the of a to in and is that for with on as by from this it are be or an each one which has at not more "
    "than its can when every text word count learn merge pair split small large first last corpus letter "
    "symbol order rule table train score price river garden winter summer stone bridge market letter window "
    "paper silver copper north south morning evening music theory number simple common write reader story "
    "animal flower island mountain village kitchen teacher student doctor engine signal circle square planet "
    "season harbor forest castle candle anchor basket button camera cotton dinner editor fabric galaxy hammer "
    "insect jacket kettle ladder magnet needle orange pencil quartz rabbit saddle tunnel umbrella velvet "
    "walnut yellow zigzag blanket cabinet diamond elephant feather giraffe hexagon iceberg journey kingdom "
    "lantern mineral notebook octopus penguin quarter rainbow saucer tailor urchin violin walrus yogurt zipper "
    "acorn bishop cactus donkey eclipse falcon goblet hermit icicle jungle koala lemon marble nickel oyster parrot"
).split()
_CHINESE = (
    "我们 使用 一个 这个 数据 文本 学习 方法 可以 需要 出现 频率 合并 符号 常见 句子 结果 "
    "问题 研究 中文 英文 汉字 字符 规则 顺序 统计 计算 速度 内存 文件 系统 工具 实验 比较 "
    "提高 减少 选择 保留 大小 短语 天空 河流 城市 花园 老师 学生"
).split()

_RARE_DOCUMENTS = 3
"""How many documents each rare word or character appears in."""


def known_answer_documents() -> Iterator[tuple[str, str]]:
    """Yields `(language, text)` of 648 documents, 484 English and 164 Chinese, the same ones every time."""
    chance = random.Random(20261130)
    planted = [word for word in (*NEGATIVES, *RARE_CHARACTERS) for _ in range(_RARE_DOCUMENTS)]
    for number in range(_NUM_DOCUMENTS):
        # The languages alternate evenly, so any part of the corpus has both.
        chinese = (number + 1) * NUM_CHINESE // _NUM_DOCUMENTS > number * NUM_CHINESE // _NUM_DOCUMENTS
        words = _make_sentence(chance, _CHINESE if chinese else _ENGLISH, POSITIVES[:5] if chinese else POSITIVES[5:])
        if number % 36 == 0 and planted:
            words.append(planted.pop(0))
        yield ("zh" if chinese else "en"), " ".join(words)


def _make_sentence(chance: random.Random, common: Sequence[str], positives: Sequence[str]) -> list[str]:
    words = [common[int(len(common) * chance.random() ** 2)] for _ in range(9 + int(6 * chance.random()))]
    for word in positives:
        words.insert(int(len(words) * chance.random()), word)
    return words


def read_known_answers(
    file_slice: FileSlice, corpus: Corpus, carry: Sequence[str], counts: Counter[str]
) -> Iterator[RawRows]:
    """Yields the documents of the corpus, with their language in the column `lang`; see `Reader`."""
    unknown = [name for name in carry if name != "lang"]
    if unknown:
        raise ValueError(
            f"the known-answers corpus has no column {unknown[0]!r} to carry, only 'lang'. Set "
            "shards.carry, or sweep.language_column in a sweep"
        )
    documents = ((n, text.encode(), [lang] * len(carry)) for n, (lang, text) in enumerate(known_answer_documents()))
    yield from make_batches(documents, carry)
