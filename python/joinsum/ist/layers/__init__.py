"""Which layers of a model are cut into subnets, which modules their neurons pass, and what is refused."""
