"""What came out: results and run folders, comparisons, tables, pictures, pages."""
