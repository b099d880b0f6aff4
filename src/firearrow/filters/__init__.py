"""Which messages a consumer wants: by tag, by an SQL92 expression, by code of its own."""
