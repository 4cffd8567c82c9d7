"""The Spark side of the hub: the fold over the log, its sinks and manifest, the clock, the job."""
