"""Plans by cost: search, placement, partition, baselines, plan cache and plan reuse across sizes."""
