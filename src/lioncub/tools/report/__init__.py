"""A comparison's records as tables, sentences and one page with plots."""
