"""Several processes that train one model: their group, what each owns, and parameter servers."""
