"""Graphs of einsums: the builder, their JSON, equations and operations, and orders in which to contract them."""
