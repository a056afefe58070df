"""Pages and pictures made from results: nothing here measures or decides."""
