"""Redis: the views of a cluster and its live channels; everything here can be made again."""
