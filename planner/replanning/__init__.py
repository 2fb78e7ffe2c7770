"""Whether a running plan should be kept, once seconds are measured or the cluster has changed."""
