"""Below all other rooms: errors, arguments of public functions, dtypes, text tables, files written atomically."""
