"""Start, monitor and stop jobs, and test a pipeline without a job."""
