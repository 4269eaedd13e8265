"""The measured table of lu_solve and the header that is made of it."""
