"""The tensor relational algebra: plans of both levels, expressions, kernels, rules, sources and stored relations."""
