"""Where rows come from and go to: one module a connector."""
