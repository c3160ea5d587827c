"""The wallet before it was split: one record per customer, and the release that splits it while payments run."""
