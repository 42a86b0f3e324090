"""What all benchmarks share: cells, ranks as processes, contenders in turns, and files of results."""
