"""Where topics are: name servers, their answers, the cache of routes."""
