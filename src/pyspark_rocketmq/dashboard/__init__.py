"""The dashboard in a browser: queries from their log, the cluster from its brokers.

Needs the extra ``dashboard``.
"""
