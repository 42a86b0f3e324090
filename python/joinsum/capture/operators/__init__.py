"""The operator table, a file for each family."""
