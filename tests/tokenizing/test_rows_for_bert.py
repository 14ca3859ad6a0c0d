"""Job 2 with a WordPiece tokenizer: rows as BERT takes them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bpe_core import Tokenizer
from pipelines.loader.batching import Batching
from pipelines.loader.shard_batches import ShardBatches
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
VOCAB = {token: id_ for id_, token in enumerate([*SPECIAL.values(), "the", "cat", "##s", "sat", "."])}


def write_tokenizer(folder: Path) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [{"id": VOCAB[token], "content": token, **flags} for token in SPECIAL.values()],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": VOCAB,
        },
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    roles = {f"{role}_token": spelling for role, spelling in SPECIAL.items()}
    (folder / "special_tokens_map.json").write_text(json.dumps(roles))


def test_documents_lie_between_cls_and_sep_and_rows_have_token_types(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer")
    pq.write_table(pa.table({"text": ["The cats sat.", "the dog"]}), tmp_path / "corpus.parquet")
    shards = Shards(
        output=str(tmp_path / "out"),
        tokenizer=str(tmp_path / "tokenizer"),
        bucket_lengths=(8,),
        begin_token=True,
        token_type_ids=True,
        provenance=False,
    )
    corpus = Corpus(files=(str(tmp_path / "corpus.parquet"),))
    tokenize_corpus(Project(corpus=corpus, shards=shards, run=Run(workers=1, progress=False)))
    [file] = (tmp_path / "out").glob("bucket=8/*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [row["input_ids"] for row in rows] == [[2, 4, 5, 6, 7, 8, 3, 0], [2, 4, 1, 3, 0, 0, 0, 0]]
    assert [row["attention_mask"] for row in rows] == [[1] * 7 + [0], [1] * 4 + [0] * 4]
    assert [row["token_type_ids"] for row in rows] == [[0] * 8] * 2
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert tokenizer.decode(rows[0]["input_ids"], skip_special_tokens=True) == "the cats sat."
    [batch] = ShardBatches(str(tmp_path / "out"), Batching(batch_size=2))
    assert batch["token_type_ids"].shape == (2, 8)
    assert not batch["token_type_ids"].any()


@pytest.mark.parametrize(
    ("roles", "expected"), [(SPECIAL, (2, 3)), (SPECIAL | {"bos": "[PAD]", "eos": "[UNK]"}, (0, 1))]
)
def test_bos_and_eos_go_before_cls_and_sep(tmp_path: Path, roles: dict[str, str], expected: tuple[int, int]) -> None:
    write_tokenizer(tmp_path / "tokenizer")
    named = {f"{role}_token": spelling for role, spelling in roles.items()}
    (tmp_path / "tokenizer" / "special_tokens_map.json").write_text(json.dumps(named))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer")
    assert (tokenizer.begin_id, tokenizer.end_id) == expected
