"""A slow and simple reference of `joinsum.sparse`, written from notes/galley.md alone: dense values, estimates,
sub-expressions, elimination orders, loop orders, formats, and random programs."""
