"""Small decoders trained with any layer of the package as their attention, and how they do beyond their length."""
