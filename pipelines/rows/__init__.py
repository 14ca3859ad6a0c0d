"""Documents to rows: text is encoded, split into segments, assigned to buckets or packed, and padded."""
