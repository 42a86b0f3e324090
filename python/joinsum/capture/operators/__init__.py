"""The operator table, a file for each family, and the formulas of its elementwise operators."""
