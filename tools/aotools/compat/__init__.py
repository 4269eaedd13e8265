"""tools/compat: which parts of the package work with which torch, found out without a GPU."""
