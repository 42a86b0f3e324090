"""The sites and what is known about them: the context, the cluster, its calibration and cached rates, traces."""
