"""The live view in a browser: queries by their log, the cluster by its brokers.

Needs the extra ``dashboard``.
"""
