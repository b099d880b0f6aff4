"""Jobs on Spark: archive, replay, metrics, trace, audit, rebuild, and pipelines of users."""
