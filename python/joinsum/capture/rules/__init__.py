"""Rules of the operator table: what a row is, and the kinds of rule that are data."""
