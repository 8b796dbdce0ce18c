"""Starting, following and stopping jobs; trying a pipeline without them."""
