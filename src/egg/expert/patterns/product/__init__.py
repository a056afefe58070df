"""Matrix products, with what goes before and after them."""
