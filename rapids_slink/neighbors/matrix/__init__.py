"""All pairs of rows of codes or of bits, compared on a GPU and stored, and the search among them."""
