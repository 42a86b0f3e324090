"""Programs while they are recorded, and recorded ones: values with labels, einsums and calls of operators."""
