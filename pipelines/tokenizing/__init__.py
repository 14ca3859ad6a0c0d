"""Job 2: documents -> ids -> buckets -> training shards."""
