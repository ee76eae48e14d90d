"""One step: parameters in buckets, hooks, exchanges in flight, and the pipeline that runs them."""
