"""The bucket choice of a corpus: what the manifest says of it, and which buckets the shards then have."""

import numpy as np

from pipelines.settings.shards import BucketChoice, Shards
from pipelines.tokenizing.bucket_choice import describe_choice, use_chosen_buckets


def test_a_choice_is_described_beside_the_usual_ones() -> None:
    choice = BucketChoice(count=2, max_length=16, multiple_of=2)
    assert describe_choice(np.bincount([2, 2, 2, 10], minlength=17), choice) == {
        "rows": 4,
        "tokens": 16,
        "bucket_lengths": [2, 10],
        "padding_share": 0.0,
        "equal_width": {"bucket_lengths": [8, 16], "padding_share": 0.6},
        "powers_of_two": {"bucket_lengths": [8, 16], "padding_share": 0.6},
    }


def test_the_longest_length_that_is_allowed_stays_a_bucket() -> None:
    settings = Shards(output="o", buckets=BucketChoice(count=2, max_length=16))
    assert use_chosen_buckets(settings, {"bucket_lengths": [8]}).bucket_lengths == (8, 16)
    assert use_chosen_buckets(settings, {"bucket_lengths": [8, 16]}).bucket_lengths == (8, 16)
