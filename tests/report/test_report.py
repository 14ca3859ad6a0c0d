"""Tests of the report: its figures, and its page in a browser, where a typed text must give the ids of `encode`."""

import csv
import io
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import Browser, find_chromium

from bpe_core import Tokenizer
from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.measuring.token_display import show_on_one_line
from pipelines.cli import main
from pipelines.reading import source_files
from pipelines.report import charts

pytest.importorskip("jinja2", reason="pip install tokenmill[report]")
pytest.importorskip("matplotlib", reason="pip install tokenmill[report]")

SPECIAL = {"unk": "<unk>", "eos": "<|end|>"}

TEXTS = [
    "The quick brown fox jumps over the lazy dog, it's 2025! I'll don't WE'RE we've.\r\n\r\nNext  line\t\ttabs",
    "训练语言模型需要分词，词表不能太大。训练 语言 模型 数据 训练 语言 模型",
    "Größe, naïve café, Ελληνικά, Русский язык и слова, עברית, العربية, हिन्दी, ไทย, 日本語のテキスト, 한국어",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n    pass\n",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 e\u0301 a\u030a",
]

# Characters of Unicode 14, which every supported browser knows.
_RANGES = (
    *((0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x64A)),
    *((0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE3A), (0x1100, 0x1112), (0x2000, 0x206F), (0x2150, 0x218B)),
    *((0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xFE00, 0xFE0F)),
    *((0xFF01, 0xFF5E), (0xFFF9, 0xFFFF), (0x1D400, 0x1D454), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF)),
    *((0x1F600, 0x1F64F), (0x20000, 0x20010), (0xE0020, 0xE007F), (0x10FFF0, 0x10FFFF)),
)
_PARTS = (
    *("\r\n", "\n", "\r", "\t", "\x00", "\x01", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "\u1680"),
    # Marks and letters of Unicode 10 to 16: the browser would normalize them, and tokenmill's tables do not list them.
    *("\u0300\u1df6\u0316", "\U000105d2\u0307", "\u32ff", "\U00011935\U00011930", "\ua7cb"),
    *("\u2028", "\u3000", "\ufeff", "\u200d", "  ", "   ", "'s", "'LL", "'ſ", "İ", "ẞ", "Σ", "ﬁ", "Å", "가"),
    *(
        "<unk>",
        "<|end|>",
        "<|en",
        "</w>",
        "<b>&amp;",
        "\\n",
        "\\u0041",
        "👩‍👩‍👧‍👦",
        "🇩🇪🇫🇷",
        "e\u0301\u0323",
        "½",
        "Ⅷ",
        "٣",
    ),
    *(
        "the fox",
        "THE FOX",
        " 训练 \n",
        "\ufffd",
        "aaaaaaaaaaaa",
        "-" * 40,
        " the",
        "123456",
        "训练",
        "\ud83d",
        "\ude00",
    ),
)


def make_random_texts(number: int) -> list[str]:
    """Returns the same texts every time: many scripts, spaces, controls, marks, emoji and lone surrogates."""
    chance = random.Random(5)
    words = [word for text in TEXTS for word in text.split(" ")]

    def part() -> str:
        kind = chance.random()
        if kind < 0.3:
            return chance.choice(_PARTS)
        if kind < 0.6:
            return chance.choice(("", " ")) + chance.choice(words)
        low, high = chance.choice(_RANGES)
        return "".join(chr(chance.randint(low, high)) for _ in range(chance.randint(1, 5)))

    texts = ["".join(part() for _ in range(chance.randint(0, 12))) for _ in range(number - 3)]
    return ["", "a" * 3000 + "b" * 3000, "\ud83d\ude00\ude00", *texts]


def train(kind: Any, pattern: str | None, **settings: Any) -> Tokenizer:
    settings = {"num_merges": 400, "special_tokens": SPECIAL, **settings}
    return Tokenizer.train(TEXTS * 3, kind=kind, pattern=pattern, **settings)


TOKENIZERS = {
    "byte-gpt2": lambda: train("byte", "gpt2"),
    "byte-cl100k": lambda: train("byte", "cl100k", special_ids="first"),
    "byte-whitespace": lambda: train("byte", "whitespace"),
    "byte-deepseek": lambda: train("byte", "deepseek-v3", vocab_order="gpt2"),
    "byte-lower": lambda: train("byte", "o200k", unicode="NFKC", lowercase=True),
    "char-apart": lambda: train("char", None, special_ids="first"),
    "char-glued": lambda: train("char", None, end_of_word_placement="glued", unicode="NFD"),
    "whole-words": lambda: Tokenizer(replace(train("byte", "gpt2").model, ignore_merges=True)),
    "prefix-space": lambda: add_prefix_space(train("byte", "gpt2")),
    "added": lambda: change_added_tokens(train("byte", "gpt2", lowercase=True)),
}


def add_prefix_space(tokenizer: Tokenizer) -> Tokenizer:
    model = tokenizer.model
    return Tokenizer(replace(model, pre_tokenizer=replace(model.pre_tokenizer, add_prefix_space=True)))


def change_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Returns the tokenizer with added tokens that take white space beside them, or match whole words or lower case."""
    end, unknown = (
        next(token for token in tokenizer.added_tokens if token.content == content) for content in ("<|end|>", "<unk>")
    )
    id_ = tokenizer.vocab_size
    added = (
        end._replace(lstrip=True),
        unknown._replace(single_word=True, special=False),
        unknown._replace(content="The Fox", id=id_, special=False, normalized=True),
        unknown._replace(content="训练", id=id_ + 1, special=False, rstrip=True),
    )
    roles = {"eos": "<|end|>"}
    tokens = [*tokenizer.model.tokens, b"The Fox", "训练".encode()]
    return Tokenizer(replace(tokenizer.model, tokens=tokens, added_tokens=added, special_roles=roles))


def write_page(tokenizer: Tokenizer, folder: Path, **given: Any) -> Path:
    """Writes the report of a tokenizer into `folder`, and returns the path of its page; `given` are settings."""
    tokenizer.save(folder / "tokenizer")
    (folder / "corpus.txt").write_text("not read")
    settings = {
        "corpus": {"files": str(folder / "corpus.txt")},
        "report": {
            "output": str(folder / "report"),
            "tokenizer": str(folder / "tokenizer"),
            "samples": ["the dog 训练\r\n</script><b>&", *TEXTS],
            **given,
        },
    }
    config = folder / "mixed.yaml"
    config.write_text(yaml.safe_dump(settings, allow_unicode=True))
    main(["report", "--config", str(config)])
    return folder / "report" / "report.html"


# Figures.


def run_report(folder: Path, tokenizer: Tokenizer | None = None, **sections: Any) -> dict[str, Any]:
    """Makes a report in `folder` and returns its JSON; `sections` override the settings of `write_page`."""
    page = write_page(tokenizer or train("byte", "gpt2", num_merges=20), folder, **sections)
    return dict(json.loads((page.parent / "report.json").read_text(encoding="utf-8")))


def read_rows(folder: Path, name: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO((folder / "report" / f"{name}.csv").read_text(encoding="utf-8"))))


SWEEP = {
    "sizes": [
        {
            "num_merges": merges,
            "vocab_size": 258 + merges,
            "tokens_per_character": per_character,
            "positives": {"share_whole": positives, "tokens": {"model": 2, "data": 1}},
            "negatives": {"share_whole": negatives, "tokens": {"xylophone": 5}},
            "languages": {
                "en": {"bytes_per_token": 1 / per_character, "parity": 1.0},
                "日本": {"bytes_per_token": 1.5, "parity": 2.0},
            },
        }
        for merges, per_character, positives, negatives in (
            (10, 0.8, 0.5, 0.0),
            (20, 0.5, 1.0, 0.0),
            (40, 0.4, 1.0, 1.0),
        )
    ],
    "recommended": {"num_merges": 20, "vocab_size": 278, "reason": "all are as they should be"},
}


def test_a_figure_without_data_is_left_out_with_the_reason(tmp_path: Path) -> None:
    figures = run_report(tmp_path)["figures"]
    absent = {name: figure["absent"] for name, figure in figures.items() if "absent" in figure}
    assert list(absent) == ["sizes", "whole", "languages", "buckets", "uses", "audit"]
    assert "that tokenmill sweep writes" in absent["sizes"]
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert page.count("No sweep over vocabulary sizes was given") == 3
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        *("merges.csv", "pieces.csv", "report.html", "report.json", "vocabulary.csv")
    ]


def test_the_figures_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    figures = run_report(tmp_path, sweep=str(tmp_path / "sweep.json"))["figures"]
    assert read_rows(tmp_path, "sizes") == [
        ["vocab_size", "num_merges", "tokens_per_character"],
        *(["268", "10", "0.8"], ["278", "20", "0.5"], ["298", "40", "0.4"]),
    ]
    assert figures["sizes"]["summary"] == (
        "0.800 tokens per character with 268 entries, 0.400 with 298; fewer is better. The vertical line marks the "
        "recommended size, 278: all are as they should be."
    )
    assert figures["whole"]["rows"] == [[268, 0.5, 0.0], [278, 1.0, 0.0], [298, 1.0, 1.0]]
    assert figures["whole"]["summary"].endswith("278 entries: 100% of the positives and 0% of the negatives.")
    # At the size of the sweep that is nearest to the tokenizer's 278.
    assert figures["languages"]["rows"] == [["en", 2.0, 1.0], ["日本", 1.5, 2.0]]
    assert figures["languages"]["summary"] == (
        "With 278 entries, from 2.00 bytes per token (en) down to 1.50 (日本). The more bytes a token holds, the fewer "
        "tokens a text costs. Parity is a language's tokens per byte divided by those of the reference language; 1 is "
        "equal cost."
    )
    # The words of the sweep are shown as they are split.
    assert {row[0] for row in figures["pieces"]["rows"]} == {"model", "data", "xylophone"}


def test_words_are_split_with_more_and_more_merges(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["hug pug hug"], num_merges=2)
    figures = run_report(tmp_path, tokenizer, words=["hug", "p ug"])["figures"]
    assert figures["pieces"]["columns"] == ["word", "merges", "tokens", "pieces"]
    assert figures["pieces"]["rows"] == [
        ["hug", 0, 3, ["h", "u", "g"]],
        ["hug", 1, 2, ["h", "ug"]],
        ["hug", 2, 1, ["hug"]],
        ["p␣ug", 0, 4, ["p", "␣", "u", "g"]],
        ["p␣ug", 1, 3, ["p", "␣", "ug"]],
    ]


def test_words_are_chosen_if_none_are_given(tmp_path: Path) -> None:
    figures = run_report(tmp_path, train("byte", "gpt2", num_merges=300))["figures"]
    words = {row[0] for row in figures["pieces"]["rows"]}
    assert len(words) > 2
    tokens = {row[1] for row in figures["vocabulary"]["rows"]}
    assert words <= tokens


def test_sample_texts_are_shown_without_reading_the_whole_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "fingerprint_file", lambda *_: pytest.fail("the corpus is hashed"))
    page = write_page(train("byte", "gpt2", num_merges=20), tmp_path, samples=[])
    assert "corpus.txt, row 0" in page.read_text(encoding="utf-8")


def test_every_token_is_listed_with_what_it_is_made_of(tmp_path: Path) -> None:
    special = {"eos": "<end>"}
    tokenizer = Tokenizer.train(["hug pug hug\n"], num_merges=2, special_tokens=special)
    report = run_report(tmp_path, tokenizer, words=["hug"])
    assert report["tokenizer"]["fingerprint"] == Tokenizer.load(tmp_path / "tokenizer").fingerprint
    assert report["tokenizer"]["special_tokens"] == {"<end>": 258}
    vocabulary = read_rows(tmp_path, "vocabulary")
    assert vocabulary[0] == ["id", "token", "bytes", "made_by", "merge", "count"]
    assert vocabulary[1 + 10] == ["10", "⏎", "0a", "base", "", ""]
    assert vocabulary[1 + 0xE6] == ["230", "\\xe6", "e6", "base", "", ""]
    assert vocabulary[-3:] == [
        ["256", "ug", "7567", "merge", "0", ""],
        ["257", "hug", "687567", "merge", "1", ""],
        ["258", "<end>", "3c656e643e", "special", "", ""],
    ]
    assert read_rows(tmp_path, "merges") == [
        ["merge", "left", "right", "token"],
        *(["0", "u", "g", "ug"], ["1", "h", "ug", "hug"]),
    ]


def write_project(tmp_path: Path, **sections: Any) -> str:
    """Writes a project with a corpus, runs job 1, and returns the path of its config file."""
    (tmp_path / "corpus.jsonl").write_text('{"text": "low lower lowest"}\n{"text": "new newer newest"}\n')
    content = {
        "corpus": {"files": str(tmp_path / "corpus.jsonl")},
        "tokenizer": {"vocab_size": 262, "special_tokens": {"pad": "<pad>", "eos": "<end>"}},
        "train": {"output": str(tmp_path / "tokenizer")},
        "shards": {"output": str(tmp_path / "shards"), "bucket_lengths": [16, 32]},
        "report": {"output": str(tmp_path / "report")},
        "run": {"workers": 1, "progress": False},
        **sections,
    }
    path = tmp_path / "low.yaml"
    path.write_text(yaml.safe_dump(content))
    main(["train", "--config", str(path)])
    return str(path)


def test_chosen_buckets_are_compared_with_the_usual_ones(tmp_path: Path) -> None:
    shards = {"output": str(tmp_path / "shards"), "buckets": {"count": 2, "max_length": 32, "multiple_of": 1}}
    config = write_project(tmp_path, shards=shards)
    main(["tokenize", "--config", config])
    main(["report", "--config", config])
    choice = json.loads((tmp_path / "shards" / "_manifest.json").read_text())["bucket_choice"]
    figures = json.loads((tmp_path / "report" / "report.json").read_text())["figures"]
    shares = [f"{of['padding_share']:.1%}" for of in (choice, choice["equal_width"], choice["powers_of_two"])]
    assert shares[0] < shares[1]
    assert figures["buckets"]["summary"].endswith(
        f"a padding share of {shares[0]}; as many buckets of equal width would have {shares[1]}, and powers of two "
        f"{shares[2]}."
    )


def test_counts_of_merges_and_buckets_come_from_the_jobs(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    main(["tokenize", "--config", config])
    main(["report", "--config", config])
    manifest = json.loads((tmp_path / "tokenizer" / "_manifest.json").read_text())
    counts = [row[4] for row in read_rows(tmp_path, "merges")[1:]]
    assert counts == [str(count) for count in manifest["merges"]["counts"]] == ["4", "3", "3", "2"]
    figures = json.loads((tmp_path / "report" / "report.json").read_text())["figures"]
    assert figures["buckets"]["rows"] == [[16, 1, 2, 22, 10, 0.3125]]
    assert figures["buckets"]["summary"] == "2 rows hold 22 tokens and 10 padding ids, 31.2% of all ids."
    uses = figures["uses"]
    assert sum(row[2] for row in uses["rows"]) == 22
    assert [row[2] for row in uses["rows"]] == sorted(row[2] for row in uses["rows"])
    unused = sum(row[2] == 0 for row in uses["rows"])
    assert uses["summary"].startswith(
        f"In 22 tokens of training data, {unused} of the {len(uses['rows'])} entries do not occur and "
    )
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    # The page shows the start of documents of the corpus, and the project's name.
    assert "corpus.jsonl, row 0: " in page
    assert "<h1>low</h1>" in page
    Tokenizer.train(["other"], num_merges=2, special_tokens={"eos": "<end>"}).save(tmp_path / "other")
    main(["report", "--config", config, "--report.tokenizer", str(tmp_path / "other")])
    figures = json.loads((tmp_path / "report" / "report.json").read_text())["figures"]
    assert figures["uses"]["absent"] == figures["buckets"]["absent"]
    assert figures["buckets"]["absent"] == "The training data was written with another tokenizer."
    assert not (tmp_path / "report" / "buckets.csv").exists()


def test_merges_are_counted_again_from_word_counts(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    Tokenizer.load(tmp_path / "tokenizer").keep_first_merges(3).save(tmp_path / "other")
    main(["report", "--config", config, "--report.tokenizer", str(tmp_path / "other")])
    assert [row[4] for row in read_rows(tmp_path, "merges")[1:]] == ["4", "3", "3"]


def test_findings_of_an_audit(tmp_path: Path) -> None:
    entries = [{"id": id_, "token": f"t{id_} ", "figure": 0, "related": [], "note": ""} for id_ in range(10)]
    audit = {"findings": [{"name": "unused", "meaning": "never given out", "entries": entries}]}
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    figures = run_report(tmp_path, audit=str(tmp_path / "audit.json"))["figures"]
    assert figures["audit"]["rows"] == [["unused", 10, "never given out", [f"t{id_}␣" for id_ in range(8)]]]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(SWEEP))
    written = []
    for _ in range(2):
        run_report(tmp_path, sweep=str(tmp_path / "sweep.json"))
        written.append({path.name: path.read_bytes() for path in (tmp_path / "report").iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) == 8


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(SystemExit) as ended:
        run_report(tmp_path)
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "tokenmill: the report needs jinja2, which is in the extra tokenmill[report]; install it first: "
        "pip install jinja2\n"
    )


def test_a_config_without_the_section_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text("corpus: {sample: known-answers}")
    with pytest.raises(SystemExit):
        main(["report", "--config", str(tmp_path / "a.yaml")])
    assert "the section 'report' is missing; a report needs at least report.output" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", "--config", str(tmp_path / "a.yaml"), "--report.output", str(tmp_path)])
    assert "report.tokenizer is missing: name a tokenizer's folder" in capsys.readouterr().err


def test_charts_take_colours_from_the_page_and_have_unique_ids() -> None:
    axis = charts.Axis("$x$ 字", log=True)
    drawings = [
        charts.draw_line_chart(name, [charts.Line([1, 10, 100], [3, 2, 1])] * 2, axis, charts.Axis("y", percent=True))
        for name in ("one", "two")
    ]
    drawings.append(charts.draw_bar_chart("three", ["字", "b"], [[1, 2], [2, 1]], ["x", "y"], charts.Axis("x")))
    assert re.findall(r">([^<\s]+)</text>", drawings[2])[-5:] == ["x", "字", "b", "x", "y"]
    ids = [id_ for drawing in drawings for id_ in re.findall(r' id="([^"]*)"', drawing)]
    assert len(set(ids)) == len(ids) > 0
    for drawing in drawings:
        assert drawing.startswith("<svg")
        assert not re.search("<style|DejaVu|#[0-9a-f]{6}", drawing)
        assert {"var(--series-0)", "var(--series-1)", "currentColor"} <= set(
            re.findall(r"var\([\w-]+\)|currentColor", drawing)
        )
        assert {f"#{name}" for name in re.findall(r'id="([^"]*)"', drawing)} >= set(re.findall(r"#[a-z]+-\w+", drawing))


# The page.


class Elements(HTMLParser):
    """Lists the elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report with all figures of a sweep."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "sweep.json").write_text(json.dumps(SWEEP))
    return write_page(train("byte", "gpt2"), folder, sweep=str(folder / "sweep.json"), words=[" the", "训练"])


def test_the_page_is_self_contained_and_its_parts_are_labelled(page: Path) -> None:
    elements = Elements(page.read_text(encoding="utf-8"))
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [attributes.get("href") or "" for attributes in elements.all("a", "link")]
    links += [attributes["xlink:href"] or "" for attributes in elements.all("use") if "xlink:href" in attributes]
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert [link for link in links if not link.startswith("#")] == ["data:,"]
    assert not [attributes for _, attributes in elements.found if "src" in attributes]
    labelled = {attributes.get("for") for attributes in elements.all("label")}
    fields = [attributes["id"] for attributes in elements.all("textarea", "select", "input")]
    assert set(fields) - labelled == {"escapes", "allow-special"}  # Their labels enclose them.
    assert len(elements.all("caption")) == len(elements.all("table")) > 8
    assert all(attributes.get("scope") in ("col", "row") for attributes in elements.all("th"))
    assert [len(elements.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    pictures = [attributes for attributes in elements.all("div") if attributes.get("role") == "img"]
    assert len(pictures) == 4
    assert all(len(attributes["aria-label"] or "") > 60 for attributes in pictures)
    scrolled = [attributes for attributes in elements.all("div") if "scroll" in (attributes.get("class") or "")]
    assert all("tabindex" in attributes and attributes.get("aria-label") for attributes in scrolled)


def test_invisible_characters_are_shown() -> None:
    assert show_on_one_line(b"a \n\t\xe6\x00") == "a ⏎⇥\\xe6\\x00"
    assert show_on_one_line("\u200d\U000e0020字") == "\\u200d\\U000e0020字"


# The browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium or Chrome is installed")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


def open_page(browser: Browser, page: Path) -> Browser:
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page)
    return browser


def type_texts(browser: Browser, texts: list[str], allow_special: bool) -> list[str]:
    """Types each text into the box, with escapes read, and returns the ids that the page shows."""
    return list(
        browser.run(
            """((texts, allow) => {
              const ids = ["typed", "escapes", "allow-special"];
              const [box, escapes, special] = ids.map((id) => document.getElementById(id));
              escapes.checked = true;
              special.checked = allow;
              return texts.map((text) => {
                box.value = text;
                box.dispatchEvent(new Event("input", { bubbles: true }));
                return document.getElementById("typed-ids").value;
              });
            })"""
            f"({json.dumps(texts)}, {json.dumps(allow_special)})"
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_typing_gives_the_ids_of_encode(name: str, browser: Browser, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]()
    page = write_page(tokenizer, tmp_path)
    open_page(browser, page)
    texts = make_random_texts(1000)
    specials: tuple[SpecialInText, ...] = ("plain", "allow")
    for special in specials:
        expected = [tokenizer.encode(text, special=special) for text in texts]
        ids = browser.run(f"{json.dumps(texts)}.map((text) => tokenmill.encode(text, {special!r}))")
        assert [one for one in zip(texts, ids, expected, strict=True) if one[1] != one[2]] == []
        # The text box turns carriage returns into line feeds, so they are typed as escapes.
        if special == "allow":  # A few are enough, as the box is the same.
            texts, expected = texts[:100], expected[:100]
        written = [text.replace("\\", "\\\\").replace("\r", "\\r") for text in texts]
        assert type_texts(browser, written, special == "allow") == [" ".join(map(str, ids)) for ids in expected]
    assert len({len(ids) for ids in expected}) > 20
    readable = [show_on_one_line(token) for token in tokenizer.tokens(range(tokenizer.vocab_size))]
    assert browser.run("tokenmill.spelled()") == readable
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()]


@pytest.mark.slow
def test_tokens_are_shown_at_every_key(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    tokenizer = Tokenizer.load(page.parent.parent / "tokenizer")
    browser.run("document.getElementById('typed').value = ''")
    browser.run("document.getElementById('typed').focus()")
    text = "the dog <|end|> 训练👩‍👩‍👧‍👦\\n"
    for character in text:
        browser.call("Input.insertText", text=character)
    ids = tokenizer.encode(text)
    assert browser.run("document.getElementById('typed-ids').value") == " ".join(map(str, ids))
    summary = f"{len(ids)} tokens, {len(text)} characters, {len(text.encode())} bytes, "
    assert browser.run("document.getElementById('typed-summary').textContent").startswith(summary)
    shown = browser.run("[...document.querySelectorAll('#typed-tokens .token')].map((token) => token.textContent)")
    assert shown == [show_on_one_line(token) for token in tokenizer.tokenize(text)]
    rows = "document.querySelectorAll('#typed-rows tr').length"
    assert browser.run(rows) == 0
    browser.run("document.querySelector('#typed-table summary').click()")
    assert browser.run(f"new Promise((done) => setTimeout(() => done({rows}), 100))") == len(ids)
    browser.run("document.getElementById('allow-special').click()")
    assert browser.run("document.querySelector('#typed-tokens .special').textContent") == "<|end|>"
    browser.run("document.getElementById('escapes').click()")
    ids = tokenizer.encode(text.replace("\\n", "\n"), special="allow")
    assert browser.run("document.getElementById('typed-ids').value") == " ".join(map(str, ids))
    # A screen reader is told when typing pauses.
    heard = "new Promise((hear) => setTimeout(() => hear(document.getElementById('typed-status').textContent), 900))"
    assert browser.run(heard).startswith(f"{len(ids)} tokens, ")


@pytest.mark.slow
def test_markup_in_a_text_is_shown_as_text(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    samples = browser.run("document.querySelector('.sample .tokens').textContent")
    assert samples == "the dog 训练\\r⏎\n</script><b>&"
    assert browser.run("document.getElementById('typed').value") == "the dog 训练\n</script><b>&"


@pytest.mark.slow
def test_the_vocabulary_can_be_searched(browser: Browser, page: Path) -> None:
    tokenizer = Tokenizer.load(page.parent.parent / "tokenizer")
    open_page(browser, page)
    status = "document.getElementById('vocabulary-status').textContent"
    ids = "[...document.querySelectorAll('#vocabulary-rows th')].map((cell) => Number(cell.textContent))"
    search = """((wanted) => {
      document.getElementById("search").value = wanted;
      document.getElementById("search").dispatchEvent(new Event("input"));
      return new Promise((done) => setTimeout(done, 300));
    })"""
    assert browser.run(status) == f"{tokenizer.vocab_size} entries, 200 shown"
    browser.run("document.getElementById('more').click()")
    assert browser.run(ids) == list(range(400))
    browser.run(f"{search}('#257')")
    assert browser.run(ids) == [257]
    browser.run(f"{search}(' T')")
    tokens = [show_on_one_line(token) for token in tokenizer.tokens(range(tokenizer.vocab_size))]
    assert browser.run(ids) == [id_ for id_, token in enumerate(tokens) if " t" in token.lower()] != []
    browser.run("document.getElementById('order').value = 'longest'")
    browser.run("document.getElementById('order').dispatchEvent(new Event('input'))")
    found = browser.run(ids)
    lengths = [len(tokenizer.token_bytes()[id_]) for id_ in found]
    assert lengths == sorted(lengths, reverse=True)
    browser.run(f"{search}('')")
    assert browser.run(ids)[0] == max(range(len(tokens)), key=lambda id_: (len(tokenizer.token_bytes()[id_]), -id_))
    left, right, made = tokenizer.merges[0].tolist()
    browser.run(f"{search}('#{made}')")
    cells = browser.run("[...document.querySelectorAll('#vocabulary-rows tr > *')].map((cell) => cell.textContent)")
    spelled = [tokens[id_].replace(" ", "␣") for id_ in (left, right, made)]
    assert cells == [str(made), spelled[2], f"{spelled[0]} + {spelled[1]}", "0", tokenizer.token_bytes()[made].hex(" ")]


@pytest.mark.slow
def test_a_character_without_a_symbol_is_reported(browser: Browser, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["low lower"], kind="char", num_merges=2, special_tokens={"eos": "</s>"})
    open_page(browser, write_page(tokenizer, tmp_path, samples=["low"]))
    assert type_texts(browser, ["low"], False) == [" ".join(map(str, tokenizer.encode("low")))]
    assert type_texts(browser, ["löw"], False) == [""]
    said = browser.run("document.getElementById('typed-summary').textContent")
    assert said == "ö is not in the vocabulary, and there is no unk token to replace it"
    assert browser.complaints == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_pattern_that_only_the_regex_package_supports_is_reported(browser: Browser, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["low lower"], pattern=r"(?<=x)\p{L}+|\p{L}", num_merges=2)
    assert not tokenizer.pre_tokenizer.is_compiled
    open_page(browser, write_page(tokenizer, tmp_path))
    assert "cannot encode" in browser.run("document.querySelector('#main .absent').textContent")
    assert browser.run("document.getElementById('box').hidden") is True
    assert browser.run("document.querySelectorAll('#vocabulary-rows tr').length") == 200
    assert browser.complaints == []


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const ratio = (a, b) => {
    const [low, high] = [light(value(a)), light(value(b))].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const text = ["--ink", "--muted", "--accent"].flatMap((ink) => ["--paper", "--raised"].map((on) => ratio(ink, on)));
  const tokens = [0, 1, 2, 3].map((number) => ratio("--ink", `--token-${number}`));
  const drawn = [0, 1, 2, 3, 4, 5].map((number) => ratio(`--series-${number}`, "--paper"));
  const edges = [0, 1, 2, 3].map((number) => ratio("--token-edge", `--token-${number}`));
  return [Math.min(...text, ...tokens), Math.min(...drawn, ...edges, ratio("--edge", "--paper"))];
})()"""


FIRST_LINE = "getComputedStyle(document.querySelector('.chart svg path[style*=series-0]')).stroke"


@pytest.mark.slow
def test_both_themes_have_enough_contrast(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    grounds = []
    for scheme in ("light", "dark"):
        browser.show(width=1200, height=900, scheme=scheme)
        text, drawn = browser.run(CONTRAST)
        assert text >= 4.5  # WCAG 2 asks for at least 4.5 for text and 3 for graphics.
        assert drawn >= 3
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert browser.run(FIRST_LINE) == ("rgb(11, 92, 173)" if scheme == "light" else "rgb(125, 184, 245)")
    assert grounds[0] != grounds[1]


@pytest.mark.slow
def test_the_page_fits_a_phone(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    browser.show(width=360, height=740)
    assert browser.run("document.documentElement.scrollWidth") == 360
    browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert browser.run("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
def test_every_control_can_be_reached_by_keyboard(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    browser.show(width=1200, height=900)
    reached = []
    where = "((now) => [now.id || now.className || now.tagName, getComputedStyle(now).outlineStyle])"
    for _ in range(60):
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.append(tuple(browser.run(f"{where}(document.activeElement)")))
    names = [name for name, _ in reached]
    assert names[0] == "skip"
    assert {"typed", "escapes", "allow-special", "typed-tokens", "search", "order", "more"} <= set(names)
    assert {outline for name, outline in reached if name != "BODY"} == {"solid"}


@pytest.mark.slow
def test_print_leaves_out_what_only_a_screen_can_use(browser: Browser, page: Path) -> None:
    open_page(browser, page)
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    shown = "(name) => getComputedStyle(document.querySelector(name)).display"
    assert [browser.run(f"({shown})('{name}')") for name in ("nav", ".search", ".chart")] == ["none", "none", "block"]
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run(FIRST_LINE) == "rgb(11, 92, 173)"
    browser.call("Emulation.setEmulatedMedia", media="")
