"""Entry points for ordinary PyTorch code: functions and models are captured, planned, and run on all sites."""
