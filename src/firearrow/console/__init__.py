"""Web pages over the admin API, in a process of their own."""
