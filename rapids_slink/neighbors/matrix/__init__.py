"""All distances of rows of codes, computed on a GPU and stored, and the search among them."""
