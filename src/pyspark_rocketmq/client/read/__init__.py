"""Reading queues: ranges of offsets with many pulls in flight, single pulls, samples."""
